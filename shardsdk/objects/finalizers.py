"""Finalizers: the object stays until its controller has cleaned up what Kubernetes doesn't know of.

    async def reconcile(context: Context[Bucket]) -> None:
        if await finalizing(context, "example.com/bucket", lambda: delete_bucket(context.request)):
            return
        await make_bucket(context.request)

Guarantees (tests/unit/shardsdk/objects/test_finalizers.py): the finalizer is there before
`finalizing` says that work may begin, and goes only after the clean-up has
succeeded; other finalizers stay, because every write is conditional on the
version that this reconcile knows (else Conflict, and it is tried again).  What a
clean-up has done is not done again because of what says nothing of that: of an
object that is being deleted the finalizer is taken off the version that is there
(`shardsdk.objects.anew`).

Refuses: to add a finalizer to an object that is being deleted; the API server
would, too.  Only for the object that is being reconciled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shardsdk.errors import ConfigurationError, Conflict, NotFound, NotServed
from shardsdk.objects.anew import ATTEMPTS, is_still
from shardsdk.protocol.labels import LABEL_MAX_LENGTH, is_label_key
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.reconcile.context import Context


async def finalizing(context: Context[Any], name: str, clean_up: Callable[[], Awaitable[object]]) -> bool:
    """Whether the object is on its way out: then there is nothing left to do for this reconcile.

    While it is not, the finalizer `name` is added and the answer is `False`.
    Once it is, `clean_up()` is awaited and the finalizer removed.  A clean-up
    may run again (after an error, a crash, on another shard), so that it must
    not mind what is gone already.  One that was cancelled, and goes on, does so:
    what it left out then would be lost.

    Raises: Conflict, ConfigurationError for a name that is none, and whatever `clean_up` raises.
    """
    if context.metadata.deletion_timestamp is None:
        await add_finalizer(context, name)
        return False
    if name in (context.metadata.finalizers or ()):
        await clean_up()
        if context.cancelled:
            raise asyncio.CancelledError("the clean-up was cancelled: whether it is done nobody knows")
        await remove_finalizer(context, name)
    return True


async def add_finalizer(context: Context[Any], name: str) -> bool:
    """Add the finalizer `name`; `False`: it is there already, or the object is being deleted.

    Raises: Conflict, ConfigurationError for a name that is none.
    """
    if "/" not in name:
        raise ConfigurationError(
            f"{name!r} is no finalizer: write a domain of yours in front, as in example.com/{name}"
        )
    if not is_label_key(name):
        raise ConfigurationError(
            f"{name!r} is no finalizer: write a domain in lower case, `/`, and up to {LABEL_MAX_LENGTH} letters,"
            " digits, '-', '_' and '.', with a letter or a digit at both ends"
        )
    metadata = await _known(context)
    finalizers = metadata.finalizers or []
    if name in finalizers or metadata.deletion_timestamp is not None:
        return False
    await _write(context, [*finalizers, name], context.version)
    return True


async def remove_finalizer(context: Context[Any], name: str) -> bool:
    """Remove the finalizer `name`; `False`: it is not there (or the object is not).

    Raises: Conflict.
    """
    metadata, version = await _known(context), context.version
    for left in reversed(range(ATTEMPTS)):
        finalizers = metadata.finalizers or []
        if name not in finalizers:
            return False
        try:
            await _write(context, [other for other in finalizers if other != name], version)
        except NotServed:
            raise  # the object may be there, and wait for this
        except NotFound:
            return False
        except Conflict:
            # Of an object that lives on the reconcile may write more, which would undo what it has not seen.
            if not left or context.metadata.deletion_timestamp is None:
                raise
            metadata = await _found(context)
            if metadata.uid and not is_still(context, metadata):
                raise
            version = metadata.resource_version
        else:
            return True
    return False


async def _known(context: Context[Any]) -> ObjectMeta:
    """The metadata at `context.version`; read again if this reconcile has written the object by other means."""
    return context.metadata if context.metadata.resource_version == context.version else await _found(context)


async def _found(context: Context[Any]) -> ObjectMeta:
    """The metadata as the API server has it now; empty: there is no such object."""
    found = await context.api.find(context.main, context.request.name, context.request.namespace or None)
    return ObjectMeta() if found is None else found.metadata


async def _write(context: Context[Any], finalizers: list[str], version: str) -> None:
    body = {"metadata": {"finalizers": finalizers, "resourceVersion": version}}
    made = await context.api.patch(context.main, context.request.name, context.request.namespace or None, body)
    context.metadata = made.metadata
