"""Which namespaces a ring by ranges may select: new ones by names alone, and one that is there is used all the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from localcluster import AdminClient, AdminError, ControlPlane
from sharder.core.ringspec import parse_ring, resolve, unsuited
from shardsdk.protocol.namespaces import NAME_LABEL
from tests.contracts.test_crd import CONFIGMAPS, CRDS, RINGS, SECRETS, Case, dry_run, listing, ranging, term

#: What shards of such a ring cannot tell by the names of namespaces.
BY_LABELS: dict[str, Any] = {
    "a label": {"matchLabels": {NAME_LABEL: "a", "team": "a"}},
    "a term": {"matchExpressions": [term(NAME_LABEL, "NotIn", values=["a"]), term("team", "In", values=["a"])]},
    "whether they have a name": {"matchExpressions": [term(NAME_LABEL, "Exists")]},
}
REFUSED = "know namespaces by their names alone; in spec.namespaceSelector use kubernetes.io/metadata.name"


def selecting(selector: dict[str, Any]) -> Case:
    return Case("", ranging("Namespace", SECRETS) | {"namespaceSelector": selector}, False, "by-labels")


@pytest.mark.parametrize("selector", BY_LABELS.values(), ids=BY_LABELS.keys())
async def test_one_by_labels_is_made_no_more_and_one_that_is_there_is_used_all_the_same(
    admin: AdminClient, control_plane: ControlPlane, selector: dict[str, Any]
) -> None:
    """What its shards have by now must go to others when one crashes."""
    assert unsuited(resolve(parse_ring(selecting(selector).ring()), {})[0]) is not None

    await control_plane.apply(CRDS)
    with pytest.raises(AdminError, match=REFUSED):
        await dry_run(admin, selecting(selector).ring())


async def test_one_that_is_there_can_be_edited_and_its_status_written(fresh_control_plane: ControlPlane) -> None:
    """API servers spare what an update leaves as it is; some not where a status is written, so the rule does as well.

    That shows where other fields beside the selector change.
    """
    definition = yaml.safe_load((CRDS / "clusterrings.yaml").read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = spec["x-kubernetes-validations"]
    spec["x-kubernetes-validations"] = [each for each in rules if "by their names alone" not in each["message"]]
    await fresh_control_plane.apply(stdin=yaml.safe_dump(definition))
    by_label = selecting(BY_LABELS["a label"])
    path = f"{RINGS}/{by_label.name}"
    async with fresh_control_plane.admin() as admin:

        async def patch(where: str, body: dict[str, Any]) -> None:
            await admin.request("PATCH", where, body=body, content_type="application/merge-patch+json")

        await admin.request("POST", RINGS, body=by_label.ring())
        await fresh_control_plane.apply(CRDS)
        await patch(f"{path}/status", {"status": {"shards": 1}})
        await patch(path, {"spec": listing(SECRETS, CONFIGMAPS)})
        with pytest.raises(AdminError, match=REFUSED):
            await patch(path, {"spec": {"namespaceSelector": {"matchLabels": {"team": "b"}}}})
        await patch(path, {"spec": {"namespaceSelector": None}})
        with pytest.raises(AdminError, match=REFUSED):
            await patch(path, {"spec": {"namespaceSelector": BY_LABELS["a label"]}})
