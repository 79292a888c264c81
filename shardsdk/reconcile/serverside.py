"""One server-side apply, and when it is refused, who else has set entries of the lists that it is refused for.

A list with keys (a Service's ports) is merged entry by entry: one that somebody has
given another key is theirs, and what is applied stands beside it as a further one.
Together they may be invalid, and nothing of the answer says where the other comes from.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardsdk.errors import Invalid, ShardingError
from shardsdk.kube.api import PARTIAL, Api, PatchKind, T
from shardsdk.protocol.objects import GroupResource, Resource

SECRETS: Final = GroupResource("", "secrets")
#: So many entries are named.
NAMED: Final = 3
#: Which entry of a list, by its place or by its keys.
_ENTRY: Final = re.compile(r"\[[^\]]*\]")


async def send_apply(
    api: Api,
    resource: Resource,
    name: str,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    owner: str,
    subresource: str = "",
    model: type[T] = PARTIAL,
    force: bool,
) -> T:
    """Apply `body` as the field owner `owner`; texts of a Secret go as data.

    Raises: Conflict; Invalid, which names the entries of others that the API server may mean.
    """
    body = with_texts_as_data(resource, body)
    try:
        return await api.patch(
            resource, name, namespace, body, kind=PatchKind.APPLY, subresource=subresource, model=model,
            field_manager=owner, force=force,
        )  # fmt: skip
    except Invalid as error:
        try:
            there: dict[str, Any] = await api.get(resource, name, namespace, model=dict)
        except ShardingError:
            raise error from None  # it is not there, or not to be read
        others = list(dict.fromkeys(others_entries(there, body, owner, subresource, str(error))))
        if not others:
            raise
        raise Invalid(
            f"{error} — {'; '.join(others[:NAMED])}, and what is applied stands beside it: take it out, or delete the"
            f" {resource.kind}",
            status=error.status,
            reason=error.reason,
        ) from None


def with_texts_as_data(resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object as it is stored: of a Secret's `stringData` an API server makes entries of `data`.

    It writes down that whoever applied them owns those of `stringData`, of which nothing is left; so one that is not
    applied any more would stay in `data`, which is nobody's to take it out of.
    """
    texts = body.get("stringData")
    if resource.group_resource != SECRETS or not isinstance(texts, Mapping):
        return body
    if not all(isinstance(text, str) for text in texts.values()):
        return body  # the API server says what is wrong with it
    data = {name: b64encode(text.encode()).decode() for name, text in texts.items()}
    others = {name: value for name, value in body.items() if name != "stringData"}
    return {**others, "data": {**(body.get("data") or {}), **data}}


def others_entries(
    there: Mapping[str, Any], body: Mapping[str, Any], owner: str, subresource: str, refusal: str
) -> Iterator[str]:
    """What others than `owner` have set of the object that is there, by its `managedFields`, and `body` does not have.

    Only entries of lists that `body` has as well, and that `refusal` speaks of.
    """
    refused = _ENTRY.sub("[]", refusal)
    for entry in there["metadata"].get("managedFields") or ():
        if entry.get("manager") == owner or entry.get("subresource", "") != subresource:
            continue
        for where in _foreign(entry.get("fieldsV1") or {}, body, ""):
            if _ENTRY.sub("[]", where) in refused:
                yield f"{entry.get('manager') or 'somebody'} has set {where}"


def _foreign(fields: Mapping[str, Any], body: Any, path: str) -> Iterator[str]:
    """Where `fields` has entries that `body` has not.  Source: structured-merge-diff, fieldpath/serialize-pe.go."""
    for name, below in fields.items():
        sort, _, what = name.partition(":")
        if sort == "f" and isinstance(body, Mapping) and what in body:
            yield from _foreign(below, body[what], f"{path}.{what}" if path else what)
        elif sort == "k" and isinstance(body, list):
            keys = json.loads(what)
            where = f"{path}[{','.join(f'{key}={value}' for key, value in keys.items())}]"
            same = [each for each in body if _is_keyed(each, keys)]
            yield from _foreign(below, same[0], where) if same else (where,)


def _is_keyed(entry: Any, keys: Mapping[str, Any]) -> bool:
    """A key that an entry leaves out has a default, which only the API server knows (a port's protocol)."""
    return isinstance(entry, Mapping) and all(entry.get(key, value) == value for key, value in keys.items())
