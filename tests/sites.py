"""An operator to be run, installed and looked at: keeps a ConfigMap for each Site."""

from __future__ import annotations

from pathlib import Path

from shardsdk import Context, CustomResource, Model, Operator
from shardsdk.kinds import ConfigMap


class SiteSpec(Model):
    """What somebody wants."""

    html: str


class SiteStatus(Model):
    """What there is."""

    shown: bool = False


class Site(CustomResource[SiteSpec, SiteStatus], group="example.com", version="v1", short_names=["st"]):
    """A page."""


operator = Operator("sites")


@operator.reconcile(Site, owns=[ConfigMap])
async def site(ctx: Context[Site]) -> SiteStatus:
    await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
    return SiteStatus(shown=True)


def write_sites(folder: Path, arguments: str = "") -> Path:
    """Write this file as a user's, `arguments` among those of its Operator."""
    text = Path(__file__).read_text().partition("\n\ndef write_sites")[0]
    path = folder / "sites.py"
    path.write_text(text.replace('Operator("sites")', f'Operator("sites", {arguments})'))
    return path
