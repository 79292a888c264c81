"""From bytes to objects: single ones, pages of lists, lines of a watch.

msgspec decodes to the model that the caller names and skips what the model does
not know.  One object that does not fit its model is logged and left out, so that
it cannot hold up all others; its metadata is told (`Unfit`).  Whatever else is
malformed is an error that names what was asked.

`kubernetes.aio` brings typed models too; they work through their `from_dict`,
and pydantic's through `model_validate`, at many times the cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import inspect

from shardsdk.errors import ServerError
from shardsdk.kinds.base import Kind
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
from shardsdk.kube.identity import identify
from shardsdk.kube.nesting import CUT, TOO_DEEP, cut_nested, is_cut
from shardsdk.logs import describe_error, logger_of
from shardsdk.protocol.objects import ObjectMeta, OwnerReference, PartialObject

log: Final = logger_of(__name__)

T = TypeVar("T")

#: Annotation of the bookmark that ends a watch's initial events.
#: Source: apimachinery, meta/v1.InitialEventsAnnotationKey.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: Objects decoded without giving other tasks a turn, in bytes: about a millisecond.
SLICE_BYTES: Final = 128 * 1024


class _Added(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="ADDED"):
    object: T


class _Modified(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="MODIFIED"):
    object: T


class _Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="DELETED"):
    object: T


class _Bookmark(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    object: PartialObject


class _Error(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    object: Status


class _Line(msgspec.Struct, frozen=True):
    """A watch line whose object did not fit the model."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of a list; `continue_` is empty on its last page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list.  Go writes an empty slice as `null`."""

    metadata: ListMeta
    items: list[T] | None = None


def metadata_of(thing: object) -> ObjectMeta:
    """The metadata of an object, whatever it is decoded to; a missing part is empty."""
    if isinstance(thing, PartialObject | Kind):
        return thing.metadata
    if isinstance(thing, dict):
        return msgspec.convert(thing.get("metadata") or {}, ObjectMeta, strict=False)
    found = getattr(thing, "metadata", None)
    if isinstance(found, ObjectMeta):
        return found
    identity = identify(thing)
    deleted = getattr(found, "deletion_timestamp", None)
    return ObjectMeta(
        name=identity.name,
        namespace=identity.namespace,
        uid=identity.uid,
        resource_version=identity.resource_version,
        generation=getattr(found, "generation", None) or 0,
        deletion_timestamp=None if deleted is None else str(deleted),
        labels=getattr(found, "labels", None),
        annotations=getattr(found, "annotations", None),
        owner_references=[_reference(reference) for reference in getattr(found, "owner_references", None) or ()],
        finalizers=getattr(found, "finalizers", None),
    )


def unfit_of(thing: object, error: BaseException, *, gone: bool = False) -> Unfit:
    """What can be said of an object that does not fit, given as it came (a dict) or as it was decoded."""
    why = str(error) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
    known = thing if not isinstance(thing, dict) or isinstance(thing.get("metadata"), dict) else {}
    try:
        return Unfit(metadata_of(known), why, gone)
    except (msgspec.MsgspecError, ValueError):
        who = identify(known)
        meta = ObjectMeta(name=who.name, namespace=who.namespace, uid=who.uid, resource_version=who.resource_version)
        return Unfit(meta, why, gone)


def _reference(reference: object) -> OwnerReference:
    return OwnerReference(
        api_version=getattr(reference, "api_version", None) or "",
        kind=getattr(reference, "kind", None) or "",
        name=getattr(reference, "name", None) or "",
        uid=getattr(reference, "uid", None) or "",
        controller=getattr(reference, "controller", None),
        block_owner_deletion=getattr(reference, "block_owner_deletion", None),
    )


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Decoders of one model; `codec_of` makes and keeps them."""

    one: msgspec.json.Decoder[T]
    page: msgspec.json.Decoder[Page[T]]
    line: msgspec.json.Decoder[Any]
    #: Kinds take a `null` for a field that is not there, as servers written in Go mean it.
    nulls_are_absent: bool = False

    def decode(self, target: Target, body: bytes) -> T:
        """One object.  Raises: ServerError when the answer is none."""
        return _parse(target, self.read, body)

    def read(self, body: bytes | msgspec.Raw) -> T:
        """One object, wherever it is from.  Raises: ValidationError when it does not fit the model."""
        try:
            return self.one.decode(body)
        except RecursionError:
            return self._read_cut(cut_nested(bytes(body)))
        except msgspec.ValidationError as error:
            if is_cut(bytes(body)):
                raise msgspec.ValidationError(TOO_DEEP) from None
            return self._read_without_nulls(body, error)

    def _read_cut(self, body: bytes) -> T:
        try:
            return self.one.decode(body)
        except (msgspec.ValidationError, RecursionError):
            raise msgspec.ValidationError(TOO_DEEP) from None

    def _read_without_nulls(self, body: bytes | msgspec.Raw, error: Exception) -> T:
        """What `error` was about, looked at a second time.  Raises: error."""
        if self.nulls_are_absent:
            with suppress(msgspec.MsgspecError):
                sent = _without_nulls(_ANYTHING.decode(body), _type_of(cast("Any", self.one.type)))
                return msgspec.convert(sent, self.one.type, dec_hook=build_model)
        raise error

    def decode_page(self, target: Target, body: bytes, on_unfit: Callable[[Unfit], None] | None = None) -> Page[T]:
        """A page of a list, at once: for small ones."""
        try:
            return self.page.decode(body)
        except Exception:
            page = decode_raw_page(target, body)
            return Page(page.metadata, list(self.decode_items(target, page.items or [], on_unfit)))

    def decode_items(
        self, target: Target, items: Sequence[msgspec.Raw], on_unfit: Callable[[Unfit], None] | None = None
    ) -> Iterator[T]:
        """Objects of a list one by one; `on_unfit` is told of those that do not fit the model."""
        for item in items:
            try:
                yield self.read(item)
            except NotImplementedError:
                raise
            except Exception as error:
                left_out = _leave_out(target, bytes(item), error)
                if on_unfit is not None:
                    on_unfit(left_out)

    def decode_line(self, target: Target, line: bytes) -> WatchEvent[T] | None:
        """One line of a watch; `None` for an event of an unknown kind.

        Raises: ApiError for a line that carries one, Gone among them.
        """
        try:
            event = self.line.decode(line)
        except NotImplementedError:
            raise
        except RecursionError:
            return self._decode_misfit(target, cut_nested(line), msgspec.ValidationError(TOO_DEEP))
        except Exception as error:
            return self._decode_misfit(target, line, error)
        match event:
            case _Added(object=thing):
                return WatchEvent(WatchKind.ADDED, thing, identify(thing).resource_version)
            case _Modified(object=thing):
                return WatchEvent(WatchKind.MODIFIED, thing, identify(thing).resource_version)
            case _Deleted(object=thing):
                return WatchEvent(WatchKind.DELETED, thing, identify(thing).resource_version)
            case _Bookmark(object=mark):
                ended = (mark.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
                return WatchEvent(WatchKind.BOOKMARK, None, mark.metadata.resource_version, ended)
            case _Error(object=status):
                raise explain_status(target, status)
            case _:
                return None

    def _decode_misfit(self, target: Target, line: bytes, error: Exception) -> WatchEvent[T] | None:
        with suppress(Exception):  # what it is about is said below
            event = _LINE.decode(line)
            if event.type != WatchKind.BOOKMARK.value:
                read = self.read(event.object) if is_cut(line) else self._read_without_nulls(event.object, error)
                return WatchEvent(WatchKind[event.type], read, identify(read).resource_version)
        return _judge_misfit(target, line, error)


#: Of a kind with pods in it that takes milliseconds.
_type_of: Final = lru_cache(maxsize=256)(inspect.type_info)
_EMPTY: Final[Mapping[type[inspect.Type], Callable[[], object]]] = {inspect.ListType: list, inspect.DictType: dict}


def _without_nulls(value: object, wanted: inspect.Type | None) -> object:
    """`value` without the nulls that do not fit; a list or map that has to be there is empty, which is Go's nil."""
    if isinstance(wanted, inspect.AnyType):
        return value
    if isinstance(wanted, inspect.UnionType):
        wanted = next((each for each in wanted.types if not isinstance(each, inspect.NoneType)), None)
    if isinstance(value, list):
        of_each = wanted.item_type if isinstance(wanted, inspect.ListType) else None
        return [_without_nulls(each, of_each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {field.encode_name: field for field in wanted.fields} if isinstance(wanted, inspect.StructType) else {}
    of_values = wanted.value_type if isinstance(wanted, inspect.DictType) else None
    kept: dict[str, object] = {}
    for name, each in value.items():
        field = fields.get(name)
        of_each = of_values if field is None else field.type
        if each is not None or _takes_null(of_each):
            kept[name] = _without_nulls(each, of_each)
        elif field is not None and field.required and type(field.type) in _EMPTY:
            kept[name] = _EMPTY[type(field.type)]()
    return kept


def _takes_null(wanted: inspect.Type | None) -> bool:
    return isinstance(wanted, inspect.AnyType) or (isinstance(wanted, inspect.UnionType) and wanted.includes_none)


def codec_of(model: type[T]) -> Codec[T]:
    """The decoders for `model`: a type that msgspec knows, a class with `from_dict`, or a pydantic model."""
    return cast("Codec[T]", _codec_of(cast("Any", model)))


@lru_cache(maxsize=256)
def _codec_of(model: Any) -> Codec[Any]:
    lines = _Added[model] | _Modified[model] | _Deleted[model] | _Bookmark | _Error
    return Codec(
        msgspec.json.Decoder(model, dec_hook=build_model),
        msgspec.json.Decoder(Page[model], dec_hook=build_model),
        msgspec.json.Decoder(cast("Any", lines), dec_hook=build_model),
        nulls_are_absent=isinstance(model, type) and issubclass(model, Kind),
    )


_RAW_PAGE: Final = msgspec.json.Decoder(Page[msgspec.Raw])
_LINE: Final = msgspec.json.Decoder(_Line)
_ANYTHING: Final = msgspec.json.Decoder()


def decode_raw_page(target: Target, body: bytes) -> Page[msgspec.Raw]:
    """A page whose objects are still bytes, so that decoding them can pause."""
    try:
        return _parse(target, _RAW_PAGE.decode, body)
    except RecursionError:  # of one object, which is no reason to read none
        return _parse(target, _RAW_PAGE.decode, cut_nested(body))


async def decode_large_page(target: Target, body: bytes) -> Page[msgspec.Raw]:
    """The same; cutting takes 50 times as long as decoding, and nobody waits for it."""
    try:
        return _parse(target, _RAW_PAGE.decode, body)
    except RecursionError:
        return _parse(target, _RAW_PAGE.decode, await asyncio.to_thread(cut_nested, body))


def _parse(target: Target, decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ServerError(f"{target}: the answer cannot be read: {error}", status=200) from error


def build_model(model: Any, value: object) -> object:
    """What msgspec does not know by itself, as its decoders ask for it.  Raises: ValueError for a misfit."""
    if model is object:  # whatever there is, as `Any`; msgspec has it built already
        return value
    build = getattr(model, "from_dict", None) or getattr(model, "model_validate", None)
    if build is None:
        raise NotImplementedError(f"cannot decode to {model!r}: neither msgspec, from_dict nor model_validate knows it")
    try:
        return build(value)
    except Exception as error:  # msgspec says where, but only of these
        raise ValueError(describe_error(error)) from None  # a traceback would quote values


def _judge_misfit(target: Target, line: bytes, error: Exception) -> WatchEvent[Any] | None:
    """Tell an unknown event (ignored) from an object that does not fit from a line that is no event."""
    try:
        event = _LINE.decode(line)
    except (msgspec.DecodeError, ValueError):
        raise ServerError(f"{target}: a line of the watch cannot be read: {error}", status=200) from error
    if event.type == WatchKind.BOOKMARK.value or event.type == "ERROR":
        raise ServerError(f"{target}: a {event.type} line of the watch cannot be read: {error}", status=200) from error
    if event.type not in WatchKind.__members__:
        return None
    left_out = _leave_out(target, bytes(event.object), error, gone=event.type == WatchKind.DELETED.value)
    return WatchEvent(WatchKind.BOOKMARK, None, left_out.metadata.resource_version, unfit=left_out)


def _leave_out(target: Target, thing: bytes, error: Exception, *, gone: bool = False) -> Unfit:
    """Say so, and which one it is, as far as it can be read."""
    read: object = {}
    with suppress(msgspec.DecodeError, ValueError):
        read = _ANYTHING.decode(cut_nested(thing).replace(CUT, b"null"))
    left_out = unfit_of(read if isinstance(read, dict) else {}, error, gone=gone)
    meta = left_out.metadata
    extra = {"resource": target.resource, "error": str(error), "namespace": meta.namespace, "object": meta.name}
    log.error("Object left out: it does not fit the type it is decoded to", extra=extra)
    return left_out
