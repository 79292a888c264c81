"""Leaders of the same name in other namespaces: two elections, whose winners may reconcile the same objects.

An election is by name and namespace, as client-go's are, and whoever runs an operator that is deployed once more at
a prompt stands for one in the kubeconfig's namespace.  Nothing keeps the two apart; this says that they are two.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector
from shardsdk.lease.claim import describe_holder, is_overdue
from shardsdk.logs import logger_of
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES

log: Final = logger_of(__name__)

#: By so much the clocks of two machines may differ before a leader is taken for one that is gone.
SKEW: Final = timedelta(minutes=1)


async def warn_of_namesakes(api: Api, namespace: str, name: str, clock: Clock) -> None:
    """Say which Leases called `name` are held in other namespaces than `namespace`; one list.

    Says nothing where this process may not list Leases everywhere, which no role of an operator's grants, or the API
    server does not answer.
    """
    try:
        if not await api.allowed("list", LEASES.group_resource):
            return
        selector = Selector(fields=f"metadata.name={name}")
        async for page in api.pages(LEASES, selector=selector, model=Lease, metadata_only=False):
            for lease in page:
                held = lease.holder and not is_overdue(lease, clock.now() - SKEW)
                if held and lease.metadata.namespace != namespace:
                    _tell(lease, namespace)
    except ShardingError as error:
        log.debug(
            "Nobody knows who leads under the same name in other namespaces",
            extra={"lease": f"{namespace}/{name}", "error": str(error)},
        )


def _tell(lease: Lease, namespace: str) -> None:
    there = lease.metadata.namespace
    log.warning(
        "A process leads under the same name in another namespace; what both watch is reconciled by both at once",
        extra={
            "lease": f"{there}/{lease.metadata.name}",
            "holder": describe_holder(lease),
            "remedy": f"`-n {there}` (namespace=) has this process wait for that one, and not lead in {namespace};"
            " where both are meant to run, have them watch different namespaces, or give one another name",
        },
    )
