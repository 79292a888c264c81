"""A PersistentVolumeClaim that goes with its EphemeralVolumeClaim: the example of kopf's walkthrough.

shardsdk run examples/ports/ephemeral_volume.py --install-crds
"""

from __future__ import annotations

from typing import Annotated

from shardsdk import Column, Context, CustomResource, Model, ObjectMeta, Operator
from shardsdk.kinds import PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements


class EphemeralVolumeClaimSpec(Model):
    """What is wanted of the volume."""

    size: Annotated[str, Column("Size")]


class EphemeralVolumeClaimStatus(Model):
    """Which claim was made."""

    pvc_name: Annotated[str, Column("Claim")] = ""


class EphemeralVolumeClaim(
    CustomResource[EphemeralVolumeClaimSpec, EphemeralVolumeClaimStatus],
    group="kopf.dev",
    version="v1",
    short_names=["evcs", "evc"],
):
    """A volume that goes with this object."""


operator = Operator("ephemeral-volumes")


@operator.reconcile(EphemeralVolumeClaim, owns=[PersistentVolumeClaim])
async def ephemeral(ctx: Context[EphemeralVolumeClaim]) -> EphemeralVolumeClaimStatus:
    """Have one claim of the same name, size and labels."""
    wanted = PersistentVolumeClaim(
        ObjectMeta(labels=ctx.metadata.labels),
        spec=PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name="standard",
            resources=VolumeResourceRequirements(requests={"storage": ctx.object.spec.size}),
        ),
    )
    made = await ctx.apply(wanted)
    ctx.log.info("Claim is as it should be", claim=made.metadata.name)
    return EphemeralVolumeClaimStatus(made.metadata.name)
