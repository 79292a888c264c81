"""The plain kubernetes client: no write of its is sent without the shard's lease; its objects as kinds (`as_kind`).

    async with ShardLease(access, "my-ring", fenced=False, on_deadline=lambda: os._exit(3)) as lease:
        writes = fence_writes(api_client, lease.fence)       # a kubernetes.client.ApiClient
        lease.settle_first(writes.settled)
        await lease.to_thread(work, api_client)

Guarantees (tests/integration/test_examples.py, tests/unit/shardsdk/contrib/test_kubernetes.py):
the lease is asked about every write once its connection is there, just before its bytes go, also
when urllib3 or the client tries again; the API server is told to give it up before the hold ends.

Does not guarantee that a process which is suspended between the question and the bytes sends none
when it wakes.  So such a shard promises no fence (`fenced=False`), and the sharder waits for two
lease durations before it gives the objects to others (docs/decisions/0031).  Nor that a thread ends:
it can't be cancelled.  Of what was given to `lease.to_thread` the lease knows; it is not given up while
that works, and when it is lost, `on_deadline` is called in time.  Of `asyncio.to_thread` it knows nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from yarl import URL

from shardsdk.errors import ConfigurationError, FenceClosed
from shardsdk.kinds import Kind, resource_of
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.decoding import build_model
from shardsdk.kube.doubts import DOUBT_SECONDS, ask_fence, past_owed
from shardsdk.kube.fencing import granted_of, limit_execution, limit_way

__all__ = [
    "FencedWrites",
    "as_kind",
    "fence_writes",
]

K = TypeVar("K", bound=Kind)

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
#: Behind these answers etcd may still have the write in hand.
_SERVER_ERRORS: Final = 500
#: As in V1Secret, V1beta1DeviceClass, CoreV1Event.
_MODEL: Final = re.compile(r"[A-Za-z]*?V\d+((alpha|beta)\d+)?(?P<kind>[A-Z]\w*)")
#: How often it is looked whether writes are answered, when somebody waits for that.
_LOOK_SECONDS: Final = 0.05


class FencedWrites:
    """One client's writes that may still be executed; callable from any thread."""

    def __init__(self, fence: Fence, clock: Clock) -> None:
        self._fence = fence
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[int, float] = {}
        self._count = 0

    async def settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        with self._lock:
            mine = dict(self._open)
        while True:
            now = self._clock.monotonic()
            with self._lock:
                mine = {key: until for key, until in mine.items() if key in self._open and until > now}
            if not mine:
                break
            await self._clock.sleep(min(_LOOK_SECONDS, max(mine.values()) - now))
        await past_owed([self._fence], self._clock)

    def begin(self, connection: Any = None) -> tuple[int, float]:
        """A write is about to be sent over a socket: its key, and the seconds that the API server may take.

        While the fence is merely doubted it waits, with its thread.

        Raises: FenceClosed.
        """
        while True:
            with self._lock:  # once the fence is closed, `settled` is to know of all that it has let through
                remaining, doubted = ask_fence(self._fence)
                granted = granted_of(remaining)
                if granted > 0:
                    limit_way(connection, remaining - granted)
                    return self._add(remaining), granted
            if not doubted:
                raise FenceClosed(f"write refused before it was sent: the hold on {self._fence.name} has run out")
            threading.Event().wait(DOUBT_SECONDS)

    def _add(self, remaining: float) -> int:
        now = self._clock.monotonic()
        # Those without an answer, which can no longer be executed: nobody else takes them out.
        self._open = {key: until for key, until in self._open.items() if until > now}
        self._count += 1
        self._open[self._count] = now + remaining
        return self._count

    def answered(self, key: int) -> None:
        """The write has its answer: it will not be executed later."""
        with self._lock:
            self._open.pop(key, None)


def fence_writes(api_client: Any, fence: Fence, *, clock: Clock | None = None) -> FencedWrites:
    """Ask `fence` about every write of a `kubernetes.client.ApiClient` from now on.

    Fence each client once, before its first request.
    """
    writes = FencedWrites(fence, clock or SystemClock())
    manager = api_client.rest_client.pool_manager
    # urllib3 makes pools by what it finds under the scheme, and connections by the pool's `ConnectionCls`.
    manager.pool_classes_by_scheme = {
        scheme: partial(_make_pool, pool, writes) for scheme, pool in manager.pool_classes_by_scheme.items()
    }
    manager.clear()  # connections that were made without
    return writes


def _make_pool(make: Callable[..., Any], writes: FencedWrites, *arguments: Any, **options: Any) -> Any:
    pool = make(*arguments, **options)
    pool.ConnectionCls = partial(_make_connection, pool.ConnectionCls, writes)
    return pool


def _make_connection(make: Callable[..., Any], writes: FencedWrites, **options: Any) -> Any:
    connection = make(**options)
    send, receive = connection.request, connection.getresponse
    key = 0

    def request(method: str, url: str, *arguments: Any, **more: Any) -> None:
        nonlocal key
        key = 0
        if method.upper() in _WRITES:
            if connection.sock is None:
                connection.connect()  # takes time: first this, then the question
            key, granted = writes.begin(connection.sock)
            url = str(limit_execution(URL(url, encoded=True), granted))
        send(method, url, *arguments, **more)

    def getresponse() -> Any:
        response = receive()
        if response.status < _SERVER_ERRORS:
            writes.answered(key)
        return response

    connection.request, connection.getresponse = request, getresponse
    return connection


def as_kind(kind: type[K], model: Any) -> K:
    """An object of the kubernetes package as one of `kind`, for what takes kinds.

        await ctx.apply(as_kind(Deployment, deployment))     # a kubernetes.client.V1Deployment

    Back again it is `V1Deployment.from_dict(body_of(made))`.

    Raises: ConfigurationError for an object of another kind, a field that `kind` does not know, a value that does
    not fit.
    """
    body, resource = model.model_dump(mode="json", by_alias=True, exclude_none=True), resource_of(kind)
    told = body.pop("apiVersion", resource.api_version), body.pop("kind", _kind_of(type(model)) or resource.kind)
    if told != (resource.api_version, resource.kind):
        raise ConfigurationError(f"{told[0]} {told[1]} is no {kind.__qualname__} ({resource.api_version})")
    try:
        made = msgspec.convert(body, kind, dec_hook=build_model)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{type(model).__qualname__} is no {kind.__qualname__}: {error}") from error
    # Of the metadata an API server says more than anybody who applies it.
    unknown = [each for each in _unknown(body, made, "") if not each.startswith(".metadata.")]
    if unknown:
        raise ConfigurationError(
            f"{kind.__qualname__} does not know {', '.join(each[1:] for each in unknown)}, which would be lost: write a"
            " class with that field, or send the object by ctx.api"
        )
    return made


def _kind_of(model: type[Any]) -> str:
    """What a class of the kubernetes package is for, whose objects seldom say so; empty: it is another's class."""
    named = _MODEL.fullmatch(model.__name__) if model.__module__.startswith("kubernetes.") else None
    return named["kind"] if named else ""


def _unknown(given: Any, made: Any, path: str) -> Iterator[str]:
    """Where `given`, as on the wire, has a field that the model `made` of it has not."""
    if isinstance(given, list) and isinstance(made, list):
        for number, (each, kept) in enumerate(zip(given, made, strict=True)):
            yield from _unknown(each, kept, f"{path}[{number}]")
    elif isinstance(given, dict) and isinstance(made, msgspec.Struct):
        fields = dict(zip(made.__struct_encode_fields__, made.__struct_fields__, strict=True))
        for name, each in given.items():
            if name in fields:
                yield from _unknown(each, getattr(made, fields[name]), f"{path}.{name}")
            else:
                yield f"{path}.{name}"
