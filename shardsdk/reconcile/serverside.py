"""One server-side apply: what an API server makes null is made empty, and who is to blame for a refusal is named.

Of a custom resource's map that is applied empty once its content was this owner's
alone, an API server makes null, which it refuses for ever, or keeps where null is
a value; a list that is merged it takes out, though it may be required.  So what is
refused is emptied by itself, and the apply sent again.

A list with keys (a Service's ports) is merged entry by entry: one that somebody has
given another key is theirs, and what is applied stands beside it as a further one.
Together they may be invalid, and nothing of the answer says where the other comes from.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from shardsdk.errors import Forbidden, Invalid, ShardingError, TooManyWrites
from shardsdk.kinds.wire import encode, fields_sent
from shardsdk.kube.api import PARTIAL, Api, PatchKind, T
from shardsdk.protocol.names import pointer_part
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.reconcile.ownapi import only_at

SECRETS: Final = GroupResource("", "secrets")
#: Source: Kubernetes, apimachinery, FieldManagerMaxLength.
MAX_FIELD_OWNER_CHARACTERS: Final = 128
#: So many entries are named.
NAMED: Final = 3
#: Which entry of a list, by its place or by its keys; several problems are in brackets, too.
_ENTRY: Final = re.compile(r"(?<=\S)\[[^\]]*\]")
_NULL: Final = 'Invalid value: "null": '
#: What is said beside it where the schema has rules.
_UNCHECKED: Final = re.compile(r'<nil>: Invalid value: "?null"?: some validation rules were not checked[^,\]]*')


def field_owner_of(controller: str, part: str = "") -> str:
    """How a controller signs the fields that it applies; `part` stands at the end, however long its name."""
    owner, part = (re.sub(r"[^\x21-\x7e]", "-", each) for each in (controller, part))
    return (owner[: max(MAX_FIELD_OWNER_CHARACTERS - len(part), 0)] + part)[:MAX_FIELD_OWNER_CHARACTERS]


async def send_apply(
    api: Api,
    resource: Resource,
    name: str,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    owner: str,
    subresource: str = "",
    model: type[T] = PARTIAL,  # type: ignore[assignment]
    force: bool,
) -> T:
    """Apply `body` as the field owner `owner`; texts of a Secret go as data, and maps that are empty become so.

    Raises: Conflict; Invalid, which names the entries of others that the API server may mean.
    """
    body = with_texts_as_data(resource, body)

    async def send() -> T:
        return await api.patch(
            resource, name, namespace, body, kind=PatchKind.APPLY, subresource=subresource, model=model,
            field_manager=owner, force=force,
        )  # fmt: skip

    try:
        made = await send()
    except Invalid as error:
        try:
            there: dict[str, Any] = await api.get(resource, name, namespace, model=dict)
        except Forbidden as unread:
            raise _saying(error, f"reading what is there, to empty that first: {unread}", _NULL) from None
        except ShardingError:
            raise error from None  # it is not there
        if emptied := parts_to_empty(there, body, owner, subresource, error.said):
            # Of this version: by now there may be something of others in them, which makes a Conflict.
            version = only_at(there["metadata"]["resourceVersion"])
            changes = [version, *({"op": "replace", "path": each, "value": emptied[each]} for each in emptied)]
            with _told_of(error, resource, emptied):
                await api.patch(
                    resource, name, namespace, changes, kind=PatchKind.JSON, subresource=subresource,
                    field_manager=owner,
                )  # fmt: skip
            return await send()
        others = list(dict.fromkeys(others_entries(there, body, owner, subresource, error.said)))
        if not others:
            raise
        beside = f"{'; '.join(others[:NAMED])}, and what is applied stands beside it"
        raise _saying(error, f"{beside}: take it out, or delete the {resource.kind}") from None
    # Kubernetes' own groups without a domain have no null, and drop what is empty.
    return await send() if "." in resource.group and _has_empty(body) and _lacks_empty(_parts(body), made) else made


def _unplaced(text: str) -> str:
    """Without what says which entries of lists are meant."""
    # Where none ends any more none is looked for, at each of the brackets that somebody may have written there.
    last = text.rfind("]") + 1
    return _ENTRY.sub("[]", text[:last]) + text[last:]


@contextmanager
def _told_of(error: Invalid, resource: Resource, emptied: Iterable[str]) -> Iterator[None]:
    """What ends the way around a refusal says what that was: `error`."""
    try:
        yield
    except Invalid as halfway:
        # What is applied beside it is not sent along: it would be this owner's by an update, too, and stay for ever.
        tried = f"emptying {', '.join(emptied)} first, with all else as it is, is refused as well: {halfway}"
        raise _saying(error, f"{tried}; have something in it, or delete the {resource.kind}") from None
    except TooManyWrites as spent:
        raise TooManyWrites(f"{spent}; the next was to empty what was refused: {error}") from None


def _saying(error: Invalid, more: str, about: str = "") -> Invalid:
    """The same error with `more`; one that says nothing `about` that as it is."""
    if about not in error.said:
        return error
    return Invalid(f"{error} — {more}", status=error.status, reason=error.reason)


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


def parts_to_empty(
    there: Mapping[str, Any], body: Mapping[str, Any], owner: str, subresource: str, refusal: str
) -> dict[str, Any]:
    """JSON pointers to maps and lists of the object that is there, if for nothing but some an apply was refused.

    They are those that `body` has empty, and in which there is nothing but what `owner` applied; with what they become.
    """
    ours, theirs, parts = dict[str, tuple[str, Any]](), set[str](), _parts(body)
    for entry in there["metadata"].get("managedFields") or ():
        found = _emptied(entry.get("fieldsV1") or {}, parts, there, "", "")
        pointers = {pointer: (where, empty) for pointer, where, empty in found}
        applied = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
        if applied == (owner, "Apply", subresource):
            ours = pointers
        else:
            theirs |= pointers.keys()
    left = said = _UNCHECKED.sub("", _unplaced(refusal.partition(" is invalid: ")[2]))
    ours = {pointer: ours[pointer] for pointer in ours if pointer not in theirs}
    for where, empty in ours.values():
        null = f'{_NULL}{where} in body must be of type object: "null"'
        left = left.replace(f"{where}: {null if empty == {} else 'Required value'}", "")
    return {} if left == said or left.strip("[], ") else {pointer: empty for pointer, (_, empty) in ours.items()}


def _parts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without the metadata: there null is as if nothing were said, and of the labels one may be the shard's."""
    return {name: part for name, part in body.items() if name != "metadata"}


def _emptied(
    fields: Mapping[str, Any], body: Any, there: Any, pointer: str, where: str
) -> Iterator[tuple[str, str, Any]]:
    """What `body` has empty and `there` is not, for what `fields` has in it: pointer, place in a refusal, and it."""
    if body in ({}, []) and isinstance(there, type(body)):
        if there and fields.keys() - {"."}:
            yield pointer, _unplaced(where), body  # what is in a map may have brackets in its name
        return
    for name, below in fields.items():
        sort, _, what = name.partition(":")
        if sort == "f" and isinstance(body, Mapping) and isinstance(there, Mapping):
            if what in body and what in there:
                inner = f"{where}.{what}" if where else what
                yield from _emptied(below, body[what], there[what], f"{pointer}/{pointer_part(what)}", inner)
        elif sort == "k" and isinstance(body, list) and isinstance(there, list):
            keys = json.loads(what)
            same = _entry(body, keys)
            for place, each in enumerate(there):
                if _is_keyed(each, keys):
                    yield from _emptied(below, same, each, f"{pointer}/{place}", f"{where}[]")


def _has_empty(part: Any) -> bool:
    inside = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    return part == {} or any(map(_has_empty, inside))


def _lacks_empty(sent: Any, made: Any) -> bool:
    """Whether a map that was applied empty is null in the answer, as far as that shows it."""
    if isinstance(sent, list):
        answers = [fields_sent(each) for each in made] if isinstance(made, list | tuple) else ()
        # Those of others may stand between them.
        return any(
            _lacks_empty(each, _entry(answers, _plain(each))) for each in sent if isinstance(each, Mapping) and each
        )
    if not isinstance(sent, Mapping):
        return False
    if not sent or made is None:
        return not sent and made is None
    answer = fields_sent(made)
    return isinstance(answer, Mapping) and any(
        name in answer and _lacks_empty(value, answer[name]) for name, value in sent.items()
    )


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of an entry may be its keys."""
    return {name: value for name, value in entry.items() if not isinstance(value, Mapping | list)}


def others_entries(
    there: Mapping[str, Any], body: Mapping[str, Any], owner: str, subresource: str, refusal: str
) -> Iterator[str]:
    """What others than `owner` have set of the object that is there, by its `managedFields`, and `body` does not have.

    Only entries of lists that `body` has as well, and that `refusal` speaks of.
    """
    refused = _unplaced(refusal)
    for entry in there["metadata"].get("managedFields") or ():
        if entry.get("manager") == owner or entry.get("subresource", "") != subresource:
            continue
        for where in _foreign(entry.get("fieldsV1") or {}, body, ""):
            if _unplaced(where) in refused:
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
            same = _entry(body, keys)
            yield from _foreign(below, same, where) if same is not None else (where,)


def _entry(entries: Iterable[Any], keys: Mapping[str, Any]) -> Any:
    """The entry with these keys, `None`: there is none.  Of several it is the one that leaves out the fewest."""
    same = [each for each in entries if _is_keyed(each, keys)]
    return max(same, key=lambda each: len(keys.keys() & each.keys()), default=None)


def _is_keyed(entry: Any, keys: Mapping[str, Any]) -> bool:
    """A key that an entry leaves out has a default, which only the API server knows (a port's protocol)."""
    return isinstance(entry, Mapping) and all(encode(entry.get(key, value)) == value for key, value in keys.items())
