"""Who a kubeconfig says that we are by OpenID Connect."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardsdk.errors import ConfigurationError
from shardsdk.kube.credentials import PROVIDER_PERIOD_SECONDS, RENEWAL_PAUSE_SECONDS
from shardsdk.kube.openid import REJECTED_AGAIN_SECONDS
from tests.kube_configs import authorization, kubeconfig, load, read
from tests.kube_fakes import InstantClock

SPENT = "refresh-token-one"


def id_token(expires: datetime, name: str = "") -> str:
    """What an OIDC provider issues, unsigned."""
    claims = json.dumps({"exp": int(expires.timestamp()), "name": name}, ensure_ascii=False).encode()
    return f"header.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


OLD = id_token(datetime(2000, 1, 1, tzinfo=UTC))
FRESH = id_token(datetime(2100, 1, 1, tzinfo=UTC))


@dataclass
class Provider:
    """An identity provider: what it issues, and what it was shown."""

    issued: dict[str, Any] = field(default_factory=lambda: {"id_token": FRESH})
    url: str = ""
    shown: list[dict[str, str]] = field(default_factory=list)
    drops: bool = False

    async def describe(self, _: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{self.url}/token"})

    async def issue(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        self.shown.append({name: str(value) for name, value in (await request.post()).items()} | {"as": authorization})
        if self.drops:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(self.issued, status=200 if "id_token" in self.issued else 400)


@asynccontextmanager
async def providing(tls: ssl.SSLContext | None = None, **settings: Any) -> AsyncIterator[Provider]:
    provider = Provider(**settings)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.describe)
    app.router.add_post("/token", provider.issue)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    provider.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


def user(provider: Provider, **config: Any) -> dict[str, Any]:
    settings = {
        "idp-issuer-url": provider.url + "/",
        "client-id": "kube",
        "client-secret": "s&t",
        "id-token": OLD,
        "refresh-token": SPENT,
    }
    return {"auth-provider": {"name": "oidc", "config": settings | config}}


def pem_pair(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "idp.key").write_bytes(key.private_bytes(*text))
    (folder / "idp.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "idp.pem", folder / "idp.key")
    return folder / "idp.pem", context


async def test_an_identity_provider_is_shown_nothing_before_its_certificate_is_checked(tmp_path: Path) -> None:
    authority, context = pem_pair(tmp_path)
    data = base64.b64encode(authority.read_bytes()).decode()
    async with providing(context) as provider:
        with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
            await load(tmp_path, kubeconfig(tmp_path, user(provider)))
        assert not provider.shown
        for config in ({"idp-certificate-authority-data": data}, {"idp-certificate-authority": authority.name}):
            access = await load(tmp_path, kubeconfig(tmp_path, user(provider, **config)))
            assert await authorization(access) == f"Bearer {FRESH}"
        with pytest.raises(ConfigurationError, match="absent"):
            await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"idp-certificate-authority": "absent.pem"})))


async def test_a_token_is_refreshed_when_it_runs_out(tmp_path: Path) -> None:
    clock = InstantClock()
    # Bytes that base64url and standard Base64 have different letters for.
    current = id_token(clock.now() + timedelta(minutes=20), "ÿþ?李王さくら")
    assert {"-", "_"} & set(current)
    async with providing() as provider:
        access = await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"id-token": current})), clock=clock)
        assert await authorization(access) == f"Bearer {current}"
        clock.at += PROVIDER_PERIOD_SECONDS + 1
        await authorization(access)
        assert not provider.shown
        clock.at += 16 * 60
        async with asyncio.timeout(30):
            while await authorization(access) != f"Bearer {FRESH}":
                await asyncio.sleep(0.001)
        (shown,) = provider.shown
        assert shown["grant_type"] == "refresh_token"
        assert shown["refresh_token"] == SPENT
        assert base64.b64decode(shown["as"].removeprefix("Basic ")) == b"kube:s%26t"


async def test_a_token_that_is_rejected_is_refreshed_though_this_clock_has_it_run_out_later(tmp_path: Path) -> None:
    clock = InstantClock()  # an hour behind, say
    current = id_token(clock.now() + timedelta(minutes=20))
    async with providing() as provider:
        access = await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"id-token": current})), clock=clock)
        clock.at += RENEWAL_PAUSE_SECONDS
        assert await access.credentials.renew(f"Bearer {current}")
        assert await authorization(access) == f"Bearer {FRESH}"
        assert len(provider.shown) == 1


async def test_where_none_is_taken_the_provider_is_not_asked_for_another_all_the_time(tmp_path: Path) -> None:
    clock = InstantClock()  # the API server may know none of the provider's keys, after its restart
    current = id_token(clock.now() + timedelta(minutes=20))
    async with providing() as provider:
        access = await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"id-token": current})), clock=clock)
        for _ in range(round(2 * REJECTED_AGAIN_SECONDS / RENEWAL_PAUSE_SECONDS)):
            clock.at += RENEWAL_PAUSE_SECONDS
            await access.credentials.renew(await authorization(access))
        assert len(provider.shown) == 2


async def test_a_client_without_a_secret_names_itself(tmp_path: Path) -> None:
    async with providing() as provider:
        await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"client-secret": None})))
        assert [(each["client_id"], each["as"]) for each in provider.shown] == [("kube", "")]


async def test_what_a_provider_refuses_or_drops_is_told(tmp_path: Path) -> None:
    async with providing(issued={"error": "invalid_grant"}) as provider:
        path = kubeconfig(tmp_path, user(provider))
        with pytest.raises(ConfigurationError, match=r"/token answers 400: .*invalid_grant"):
            await load(tmp_path, path)
        provider.drops = True
        with pytest.raises(ConfigurationError, match=r"identity provider: .*disconnected"):
            await load(tmp_path, path)
        for missing in ("refresh-token", "client-id", "idp-issuer-url"):
            with pytest.raises(ConfigurationError, match=rf"no {missing} to get another by; log in again"):
                await load(tmp_path, kubeconfig(tmp_path, user(provider, **{missing: None})))


@pytest.mark.parametrize("token", ["one", "a.b.c", "a.!.c", f"a.{base64.b64encode(b'[1]').decode()}.c"])
async def test_a_token_that_is_none_is_told(tmp_path: Path, token: str) -> None:
    async with providing() as provider:
        with pytest.raises(ConfigurationError, match="identity provider"):
            await load(tmp_path, kubeconfig(tmp_path, user(provider, **{"id-token": token})))


async def test_a_new_refresh_token_takes_the_place_of_the_spent_one_in_the_kubeconfig(tmp_path: Path) -> None:
    async with providing(issued={"id_token": FRESH, "refresh_token": "two: #2"}) as provider:
        path, link = tmp_path / "config", tmp_path / "link"
        kubeconfig(tmp_path, user(provider))
        path.write_text(f"# mine\n{path.read_text()}")
        before = read(str(path))
        link.symlink_to(path)
        text = path.read_text().replace(SPENT, json.dumps(SPENT))
        path.write_bytes(text.replace("\n", "\r\n").encode())
        path.chmod(0o640)
        await load(tmp_path, str(link))
        config = before["users"][0]["user"]["auth-provider"]["config"]
        assert read(str(path)) == before | {
            "users": [{"name": "u", "user": user(provider, **config | {"refresh-token": "two: #2"})}]
        }
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines[0] == b"# mine\r\n"
        assert all(line.endswith(b"\r\n") for line in lines)
        assert path.stat().st_mode & 0o777 == 0o640
        assert link.is_symlink()
        assert set(os.listdir(tmp_path)) == {"config", "link"}


@pytest.mark.parametrize("spoil", ["elsewhere too", "locked", "contains itself"])
async def test_a_new_refresh_token_that_cannot_be_written_is_told_and_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    clock = InstantClock()
    soon = id_token(clock.now() + timedelta(minutes=1))
    async with providing(issued={"id_token": soon, "refresh_token": "two"}) as provider:
        path, link, lock = (tmp_path / name for name in ("config", "link", "link.lock"))
        kubeconfig(tmp_path, user(provider))
        link.symlink_to(path)
        if spoil == "locked":  # kubectl writes it, by the same name
            lock.touch()
        else:
            more = f"# {SPENT}" if spoil == "elsewhere too" else "more: &all [*all]"
            path.write_text(f"{path.read_text()}{more}\n")
        before = path.read_text()
        access = await load(tmp_path, str(link), clock=clock)
        assert path.read_text() == before
        assert lock.exists() == (spoil == "locked")
        assert "refresh token is spent" in caplog.text
        lock.unlink(missing_ok=True)
        provider.issued["refresh_token"] = "three"
        clock.at += PROVIDER_PERIOD_SECONDS + 1
        assert await access.credentials.renew(f"Bearer {soon}")
        assert provider.shown[1]["refresh_token"] == "two"
        assert path.read_text() == (before.replace(SPENT, "three") if spoil == "locked" else before)
