"""An administrator's view of the API server, for tests, demo and benchmarks.

Objects are plain dicts and resources are written `v1/configmaps` or
`apps/v1/deployments`.  It shares no code with shardsdk on purpose: what looks
at the result must not have the fault that it looks for.

Refuses: to retry.  An error is an `AdminError` at once; only `eventually` waits.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import aiohttp

from localcluster.errors import LocalClusterError

T = TypeVar("T")
Object = dict[str, Any]
Objects = list[Object]

#: Far more than any single answer here; lists of 100,000 objects need a while.
_REQUEST_SECONDS = 60.0
#: The pause before a watch that broke off is opened again.
_REWATCH_SECONDS = 0.1
#: Between two looks at whether a right is in force.
_LOOK_SECONDS = 0.05
#: A watch event is one line; etcd takes objects of up to 1.5 MiB.
_MAX_LINE_BYTES = 8 << 20
#: As many objects as one can read in a failed test's output.
_SHOWN_OBJECTS = 20
_MERGE_PATCH = "application/merge-patch+json"


class AdminError(LocalClusterError):
    """The API server answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AdminClient:
    """A client for one event loop; use it as an async context manager.

    Without a token it sends none: to a proxy that authenticates itself.
    """

    def __init__(self, url: str, ca_bundle: bytes, token: str) -> None:
        self._url = url
        self._token = token
        self._tls = ssl.create_default_context(cadata=ca_bundle.decode())
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=64),
            headers={"Authorization": f"Bearer {self._token}"} if self._token else {},
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
            read_bufsize=_MAX_LINE_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def create(self, resource: str, body: Object, namespace: str | None = None) -> Object:
        """Create an object; apiVersion may be left out, kind may not matter to you either."""
        answer: Object = await self.request("POST", path_of(resource, namespace), body=body)
        return answer

    async def get(self, resource: str, name: str, namespace: str | None = None) -> Object:
        """Read one object.  Raises: AdminError (404 when there is none)."""
        answer: Object = await self.request("GET", path_of(resource, namespace, name))
        return answer

    async def find(self, resource: str, name: str, namespace: str | None = None) -> Object | None:
        """Read one object; `None` when there is none."""
        try:
            return await self.get(resource, name, namespace)
        except AdminError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: str, namespace: str | None = None, *, labels: str = "") -> Objects:
        """List consistently; `namespace=None` means all."""
        return (await self._list(resource, namespace, _selecting(labels)))[0]

    async def patch(
        self,
        resource: str,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        subresource: str = "",
        content_type: str = _MERGE_PATCH,
    ) -> Object:
        """Patch an object, by merge patch unless `content_type` says otherwise."""
        path = path_of(resource, namespace, name, subresource)
        answer: Object = await self.request("PATCH", path, body=body, content_type=content_type)
        return answer

    async def replace(self, resource: str, body: Object, namespace: str | None = None) -> Object:
        """Replace an object by `body`."""
        answer: Object = await self.request("PUT", path_of(resource, namespace, body["metadata"]["name"]), body=body)
        return answer

    async def delete(
        self, resource: str, name: str, namespace: str | None = None, *, options: Object | None = None
    ) -> None:
        """Delete an object; `options` is a DeleteOptions body.  Its absence is no error."""
        try:
            await self.request("DELETE", path_of(resource, namespace, name), body=options)
        except AdminError as error:
            if error.status != 404:
                raise

    async def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> Object:
        """Create a namespace."""
        return await self.create("v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})

    async def may(
        self,
        verb: str,
        resource: str,
        namespace: str = "",
        *,
        user: str = "anybody",
        groups: Sequence[str] = ("system:authenticated",),
    ) -> bool:
        """Whether `user`, or anybody of `groups`, may `verb` a resource."""
        group, _, plural = resource.rpartition("/")
        asked = {"verb": verb, "group": group.rpartition("/")[0], "resource": plural, "namespace": namespace}
        review = {"spec": {"user": user, "groups": list(groups), "resourceAttributes": asked}}
        answer = await self.create("authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    async def until_allowed(
        self,
        verb: str,
        resource: str,
        namespace: str = "",
        *,
        user: str = "anybody",
        groups: Sequence[str] = ("system:authenticated",),
        allowed: bool = True,
        timeout_seconds: float = 120.0,
    ) -> None:
        """Wait until somebody `may` do that, or may not any more: roles come into force by a watch.

        Raises: TimeoutError.
        """
        async with asyncio.timeout(timeout_seconds):
            while await self.may(verb, resource, namespace, user=user, groups=groups) is not allowed:
                await asyncio.sleep(_LOOK_SECONDS)

    async def eventually(
        self,
        resource: str,
        condition: Callable[[Objects], T | Literal[False] | None],
        namespace: str | None = None,
        *,
        labels: str = "",
        timeout_seconds: float = 60.0,
    ) -> T:
        """Wait until `condition` returns something true for the list of objects, and return that.

        It is asked after the first list and after every change, and survives
        restarts of the API server.  Raises: TimeoutError with the last objects seen.
        """
        seen: Objects = []
        said = ""

        def holds(objects: Objects) -> T | None:
            nonlocal said
            said = ""
            seen[:] = objects
            return condition(objects) or None

        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    try:
                        result = await self._watch_until(resource, namespace, labels, holds)
                    except (AdminError, aiohttp.ClientError, ConnectionError) as error:
                        result, said = None, f"; the last request failed: {error}"
                    if result is not None:
                        return result
                    await asyncio.sleep(_REWATCH_SECONDS)
        except TimeoutError:
            shown = json.dumps([_shown(each) for each in seen[:_SHOWN_OBJECTS]])
            raise TimeoutError(
                f"{resource} did not get there in {timeout_seconds} s; {len(seen)} objects: {shown}{said}"
            ) from None

    async def changes(
        self, resource: str, namespace: str | None = None, *, labels: str = "", shard_selector: str = ""
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Every version of every object: `("LISTED", object)` of those that are there, then what watching shows.

        Then come ADDED, MODIFIED and DELETED (the object as it was, with the resourceVersion of its end) until
        the API server ends the watch.
        """
        query = _selecting(labels, shard_selector)
        items, version = await self._list(resource, namespace, query)
        for item in items:
            yield "LISTED", item
        async with aclosing(self._watch(resource, namespace, query, version)) as changes:
            async for change in changes:
                yield change

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """One request, decoded (`None` for an empty answer, text when it is no JSON)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": content_type}
        async with self._open().request(method, path, data=data, params=query, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise AdminError(answer.status, f"{method} {path}: {answer.status} {_message(text)}")
            return json.loads(text) if text.startswith(("{", "[")) else text or None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise LocalClusterError("AdminClient is not open; use `async with`")
        return self._session

    async def _list(self, resource: str, namespace: str | None, query: Mapping[str, str]) -> tuple[Objects, str]:
        answer = await self.request("GET", path_of(resource, namespace), query=query)
        return answer.get("items") or [], answer["metadata"]["resourceVersion"]

    async def _watch_until(
        self, resource: str, namespace: str | None, labels: str, holds: Callable[[Objects], T | None]
    ) -> T | None:
        """One list and one watch; `None` when the watch ended first."""
        query = _selecting(labels)
        items, version = await self._list(resource, namespace, query)
        objects = {_key(item): item for item in items}
        result = holds(list(objects.values()))
        if result is not None:
            return result
        async with aclosing(self._watch(resource, namespace, query, version)) as changes:
            async for event, item in changes:
                if event == "DELETED":
                    objects.pop(_key(item), None)
                else:
                    objects[_key(item)] = item
                result = holds(list(objects.values()))
                if result is not None:
                    return result
        return None

    async def _watch(
        self, resource: str, namespace: str | None, query: Mapping[str, str], version: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        query = {"watch": "1", "resourceVersion": version, **query}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_SECONDS)
        async with self._open().get(path_of(resource, namespace), params=query, timeout=timeout) as answer:
            if answer.status >= 400:
                raise AdminError(answer.status, await answer.text())
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                    return
                yield event["type"], event["object"]


def path_of(resource: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """The URL path of `v1/pods`, `apps/v1/deployments` and the like."""
    version, _, plural = resource.rpartition("/")
    parts = ["", "apis" if "/" in version else "api", version]
    if namespace is not None:
        parts += ["namespaces", namespace]
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


def _selecting(labels: str, shard_selector: str = "") -> dict[str, str]:
    query = {"labelSelector": labels, "shardSelector": shard_selector}
    return {parameter: value for parameter, value in query.items() if value}


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]


def _shown(item: Object) -> Object:
    kept = ("name", "namespace", "labels", "resourceVersion", "deletionTimestamp")
    return {
        **{field: item["metadata"][field] for field in kept if field in item["metadata"]},
        **{field: item[field] for field in ("spec", "status") if field in item},
    }
