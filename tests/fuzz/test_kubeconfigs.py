"""Whatever a kubeconfig or a ServiceAccount's folder holds: an Access, or a ConfigurationError on which one can act."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import SERVICE_ACCOUNT_VARIABLE, load_access
from shardsdk.kube.server import Access
from tests.fuzz.hostile_values import examples, mutated, texts, values
from tests.kube_configs import certificate
from tests.kube_fakes import InstantClock

CERTIFICATE, KEY = certificate()
encoded = st.sampled_from([CERTIFICATE, KEY, "", "no PEM"]).map(lambda text: base64.b64encode(text.encode()).decode())
clusters = st.fixed_dictionaries(
    {
        "server": st.sampled_from(["https://127.0.0.1:6443", "http://a", "https://[::1]:1", "ftp://a", "https://"])
        | texts
    },
    optional={
        "certificate-authority-data": encoded | texts,
        "certificate-authority": st.sampled_from(["config", "/", "missing"]) | texts,
        "insecure-skip-tls-verify": st.booleans(),
        "tls-server-name": texts,
        "proxy-url": texts,
    },
)
# What a plugin is called must not be there: the file is hostile, and a shell would be at hand.
HARMLESS = ("no-such-program", "./none", "")
plugins = st.fixed_dictionaries(
    {
        "apiVersion": st.just("client.authentication.k8s.io/v1"),
        "command": st.sampled_from(["no-such-program", "./none", ""]),
    },
    optional={"args": values, "env": values, "interactiveMode": values},
)
providers = st.fixed_dictionaries({"name": st.sampled_from(["oidc", "gcp", "azure", "x"])}, optional={"config": values})
users = st.fixed_dictionaries(
    {},
    optional={
        "token": texts,
        "tokenFile": st.sampled_from(["config", "missing", "/"]) | texts,
        "client-certificate-data": encoded | texts,
        "client-key-data": encoded | texts,
        "client-certificate": texts,
        "client-key": texts,
        "username": texts,
        "password": texts,
        "exec": plugins,
        "auth-provider": providers,
    },
)
contexts = st.fixed_dictionaries({"cluster": st.just("c"), "user": st.just("u")}, optional={"namespace": texts})
kubeconfigs = st.builds(
    lambda cluster, user, context: {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    },
    clusters,
    users,
    contexts,
)


def runs_nothing(document: Any) -> bool:
    """Whether no mutation has made a command of what could be run."""
    users = document.get("users") if isinstance(document, dict) else None
    for user in users if isinstance(users, list) else ():
        inner = user.get("user") if isinstance(user, dict) else None
        plugin = inner.get("exec") if isinstance(inner, dict) else None
        if isinstance(plugin, dict) and plugin.get("command", "") not in HARMLESS:
            return False
    return True


def load(paths: str, environ: dict[str, str] | None = None, context: str | None = None) -> Access | None:
    """The access, or `None` where the configuration is refused in words."""

    async def open_it() -> Access:
        access = await load_access(paths, context, clock=InstantClock(), environ=environ or {})
        # What goes into each request does not break it.
        assert all(header.isprintable() for header in (await access.headers()).values())
        return access

    try:
        return asyncio.run(open_it())
    except ConfigurationError as error:
        refusal = str(error)
    assert refusal
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubeconfigs")


@given(mutated(kubeconfigs).filter(runs_nothing))
@examples(100)
def test_a_kubeconfig_of_any_values_is_an_access_or_refused(folder: Path, document: Any) -> None:
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    access = load(str(path))
    assert access is None or access.host.startswith(("http://", "https://"))


@given(st.binary(max_size=80))
@examples(60)
@example(b"a: " + b"[" * 5000)
@example(b"{" * 5000)
@example(b"clusters: &a [*a]")
def test_any_bytes_are_an_access_or_refused(folder: Path, content: bytes) -> None:
    path = folder / "bytes"
    path.write_bytes(content)
    load(str(path))


@given(texts.filter(bool), st.none() | texts)
@examples(60)
@example("~nobody-of-that-name/config", None)
@example("a" * 5000, None)
@example("/", None)
def test_any_path_and_context_is_an_access_or_refused(paths: str, context: str | None) -> None:
    load(paths, context=context)


@given(texts, texts, st.sampled_from([CERTIFICATE, KEY, "no PEM"]) | texts, texts, st.booleans())
@examples(100)
def test_any_service_account_is_an_access_or_refused(
    folder: Path, host: str, port: str, authority: str, token: str, named: bool
) -> None:
    (folder / "token").write_text(token, encoding="utf-8", errors="surrogatepass")
    (folder / "ca.crt").write_text(authority, encoding="utf-8", errors="surrogatepass")
    (folder / "namespace").unlink(missing_ok=True)
    if named:
        (folder / "namespace").write_bytes(b"\xff\xfe" + os.urandom(4))
    environ = {
        SERVICE_ACCOUNT_VARIABLE: str(folder),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "HOME": str(folder),
    }
    load("", environ)
