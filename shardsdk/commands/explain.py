"""`shardsdk explain`: what an object waits for, in the words of the process that has it.

Processes of this machine are asked by their sockets, any other by its address, or in its pod through kubectl.  When no
process that was asked has the object, the API server is asked where it is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.configuration import NAME_LABEL
from shardsdk.cache.objects import Request
from shardsdk.commands.asking import Said, Shard, ask, forwarded
from shardsdk.commands.sockets import sockets
from shardsdk.commands.workload import HEALTH_PORT
from shardsdk.errors import ApiError, ConfigurationError, ConnectionFailed, NotFound, ShardingError
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Api
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.claim import describe_holder, is_overdue
from shardsdk.logs import printable
from shardsdk.process.health import Address, parse_address
from shardsdk.protocol.labels import SHARD_LABEL_PREFIX, SHARDER_HOLDER, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.names import is_dns_label, is_dns_subdomain, is_path_segment
from shardsdk.protocol.objects import LEASES, GroupResource, ObjectMeta
from shardsdk.reconcile.explain import Wait

#: Exit codes: it was explained; nobody who was asked has the object.
EXPLAINED: Final = 0
NOT_HERE: Final = 1

#: How long what a process has said waits for the API server, which says no more than who holds the Lease.
LEASES_SECONDS: Final = 3.0

#: What says that a controller's cache does not have an object, or not as its own.
_ELSEWHERE: Final = (Wait.CACHE.name, Wait.ANOTHERS.name)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and whom; `program` is its name (`None`: any that runs here), `short_names` by resource."""

    kind: str
    name: str
    namespace: str | None = None
    program: str | None = None
    short_names: Mapping[str, Sequence[str]] | None = None
    address: str | None = None
    pod: str | None = None
    kubeconfig: str | None = None
    context: str | None = None

    def fits(self, found: Mapping[str, Any]) -> bool:
        """Whether a controller's answer is about an object of the kind that is meant."""
        resource, kind = str(found["resource"]), str(found.get("kind", "")).lower()
        plural, _, group = resource.partition(".")
        names = {resource, plural, kind, f"{kind}.{group}", *(self.short_names or {}).get(resource, ())}
        return self.kind.lower() in names


@dataclass(frozen=True, slots=True)
class Answer:
    """What there is to say, and how the command ends."""

    code: int
    lines: Sequence[str]


def parse_object(text: str) -> tuple[str, str]:
    """Read `KIND/NAME`.  Raises: ConfigurationError."""
    kind, slash, name = text.partition("/")
    if not slash or not is_dns_subdomain(kind.lower()) or not is_path_segment(name):
        raise ConfigurationError(f"{text!r} is not KIND/NAME, as in website/home or secrets/a")
    return kind, name


def explain(question: Question) -> int:
    """Ask and print; gives the exit code.  Raises: ConfigurationError, ConnectionFailed."""
    answer = asyncio.run(find_answer(question, os.environ))
    stream = sys.stdout if answer.code == EXPLAINED else sys.stderr
    stream.write("".join(f"{printable(line)}\n" for line in answer.lines))
    return answer.code


async def find_answer(question: Question, environ: Mapping[str, str]) -> Answer:
    """Ask whoever may know.  Raises: ConfigurationError, ConnectionFailed."""
    if question.address is not None and question.pod is not None:
        raise ConfigurationError("one process is asked: leave out --address or --pod")
    if question.namespace and not is_dns_label(question.namespace):
        raise ConfigurationError(f"{question.namespace!r} cannot be the name of a namespace")
    request = Request(question.namespace or await _default_namespace(question), question.name)
    # Whether its kind has namespaces is not known here.
    requests = [request] if question.namespace else [request, Request("", question.name)]
    said = await _ask_all(question, requests, environ)
    of_kind = [found for each in said for found in each.found if question.fits(found)]
    explained = [found for found in of_kind if found["waitsFor"] not in _ELSEWHERE]
    shards = [each.shard for each in said if each.shard is not None]
    if explained:
        lines = [f"{found['controller']}: {found['text']}" for found in explained]
        having = [each.shard for each in said if each.shard and any(found in explained for found in each.found)]
        return Answer(EXPLAINED, [*lines, *await _say_leases(question, having)])
    refusals = list(dict.fromkeys(f"{each.address}: {each.refusal}" for each in said if each.refusal))
    if not of_kind:
        kinds = sorted({str(found["resource"]) for each in said for found in each.found})
        if kinds:
            refusals.append(
                f"no controller here is called for {question.kind!r}; there are some for {', '.join(kinds)}"
            )
        return Answer(NOT_HERE, refusals)
    resource = str(of_kind[0]["resource"])
    return Answer(NOT_HERE, [await _where(question, resource, request, shards), *refusals])


# -- whom to ask -------------------------------------------------------------


async def _ask_all(question: Question, requests: Sequence[Request], environ: Mapping[str, str]) -> list[Said]:
    """What the processes say.  Raises: ConfigurationError when there is none."""
    if question.pod is not None:
        namespace, _, pod = question.pod.rpartition("/")
        async with forwarded(f"pod/{pod}", namespace or None, question.kubeconfig, question.context) as port:
            said = await _ask(Address("127.0.0.1", port), requests)
        if not said:
            raise ConfigurationError(f"pod {pod} does not listen on port {HEALTH_PORT}, where its health should be")
        return said
    if question.address is not None:
        address = parse_address(question.address)
        said = [] if address is None else await _ask(address, requests)
        if not said:
            raise ConfigurationError(f"nobody listens on {question.address}; {_remedy(question)}")
        return said
    addresses = [Address("", socket=str(path)) for path in sockets(question.program, environ)]
    said = [each for address in addresses for each in await _ask(address, requests)]
    # A process that was started otherwise, at the port that it has in a pod.
    said = said or await _ask(Address("127.0.0.1", HEALTH_PORT), requests)
    if not said:
        program = f"{question.program!r}" if question.program else "shardsdk"
        raise ConfigurationError(
            f"no process of {program} runs on this machine, by `shardsdk run` or with its health at"
            f" 127.0.0.1:{HEALTH_PORT}; {_remedy(question)}"
        )
    return said


async def _ask(address: Address, requests: Sequence[Request]) -> list[Said]:
    """What one process says; nothing: there is none."""
    said = [await ask(address, request) for request in requests]
    if address.socket and None in said:
        with suppress(FileNotFoundError):
            os.unlink(address.socket)  # that of a process that was killed
    return [each for each in said if each is not None]


def _remedy(question: Question) -> str:
    label = f"-l {NAME_LABEL}={question.program}" if question.program else "-n NAMESPACE"
    return (
        "for one in a pod say which by --pod [NAMESPACE/]POD"
        f" (kubectl get pods {label}); for one that listens elsewhere, --address HOST:PORT"
    )


# -- who has the object instead ----------------------------------------------


async def _default_namespace(question: Question) -> str:
    """As kubectl has it: that of the kubeconfig's context."""
    try:
        return (await load_access(question.kubeconfig, question.context)).namespace
    except ConfigurationError:
        if question.kubeconfig or question.context:
            raise
        return "default"


async def _where(question: Question, resource: str, request: Request, asked: Sequence[Shard]) -> str:
    """Why none of the processes that were asked has an object, as the API server knows it."""
    plural, _, group = resource.partition(".")
    about = f"{resource} {request.name}"
    try:
        access = await load_access(question.kubeconfig, question.context)
        async with Client(access) as api:
            metadata = await _metadata(api, GroupResource(group, plural), request)
            labels = {} if metadata is None else metadata.labels or {}
            shards = {key: value for key, value in labels.items() if key.startswith(SHARD_LABEL_PREFIX)}
            leases = [await say_lease(api, *each, asked) for each in _leases(shards, asked)]
    except (ApiError, ConnectionFailed, ConfigurationError) as error:
        return f"{about}: not here, and where it is the API server does not say: {error}"
    if metadata is None:
        inside = f" in namespace {request.namespace!r}" if request.namespace else ""
        return (
            f"{about}: there is none{inside} at {access.host} ({access.origin}); another one's namespace is given by -n"
        )
    if shards:
        return "; ".join([_with_shards(about, shards, asked), *leases])
    return (
        f"{about}: it is there, and none of the processes that were asked has it: it has no shard yet"
        " (kubectl sharding explain says why), is in a namespace that is not watched, is not selected, or another"
        " replica leads"
    )


def _with_shards(about: str, shards: Mapping[str, str], asked: Sequence[Shard]) -> str:
    named = " and ".join(f"{value} (label {key})" for key, value in sorted(shards.items()))
    if any(shards.get(parse_ring_name(each.ring).shard) == each.name for each in asked):
        return (
            f"{about}: its label names this shard, {named}, whose cache does not have it: it is in a namespace that is"
            " not watched, is not selected, or has just come"
        )
    first = next(iter(shards.values()))
    return f"{about}: it is with another shard, {named}; ask that one, in a pod by --pod {first}"


def _leases(shards: Mapping[str, str], asked: Sequence[Shard]) -> list[tuple[str, str]]:
    """Namespaces and names of the leases of these shards, by label: those of a ring are in one namespace, as a rule."""
    found = [(each.namespace, shards.get(parse_ring_name(each.ring).shard)) for each in asked]
    return [(namespace, name) for namespace, name in dict.fromkeys(found) if name is not None]


async def _say_leases(question: Question, shards: Sequence[Shard]) -> list[str]:
    """Who holds the leases of these shards; nothing where the API server cannot be asked."""
    if not shards:
        return []
    try:
        async with (
            asyncio.timeout(LEASES_SECONDS),
            Client(await load_access(question.kubeconfig, question.context)) as api,
        ):
            return [await say_lease(api, each.namespace, each.name, shards) for each in dict.fromkeys(shards)]
    except TimeoutError:
        return [f"who holds the shard's Lease is not known: the API server gave no answer in {LEASES_SECONDS:g} s"]
    except ShardingError:
        return []


async def say_lease(api: Api, namespace: str, name: str, asked: Sequence[Shard]) -> str:
    """Who holds a shard's Lease, and whether that is one of the processes that were `asked`."""
    about = f"shard {name}: its Lease {namespace}/{name}"
    try:
        lease = await api.get(LEASES, name, namespace, model=Lease)
    except NotFound:
        return f"{about} is not there: no process of that name has begun in this namespace"
    except (ApiError, ConnectionFailed) as error:
        return f"{about} cannot be read: {error}"
    if not lease.holder:
        return f"{about} is held by nobody; the shard has left"
    if lease.left:
        wait = f"{lease.duration_seconds} s from {lease.spec.renew_time} on"
        return f"{about} is left to the next process of that name, for which its objects wait for {wait}"
    held = f"{about} is held by {describe_holder(lease)}"
    if lease.holder == SHARDER_HOLDER:
        return f"{held}, which gives its objects to other shards"
    here = any((each.namespace, each.name, each.instance) == (namespace, name, lease.instance) for each in asked)
    held += f", which is {'the process that was asked' if here else 'another process'}"
    late = is_overdue(lease, SystemClock().now())
    return held + (f"; it was to be renewed in time, and was last at {lease.spec.renew_time}" if late else "")


async def _metadata(api: Api, resource: GroupResource, request: Request) -> ObjectMeta | None:
    served = await api.discover(resource.group, resource.resource)
    if served is None:
        return None
    namespace = request.namespace or None if served.namespaced else None
    try:
        return (await api.get(served, request.name, namespace)).metadata
    except NotFound:
        return None
