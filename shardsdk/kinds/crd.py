"""CustomResourceDefinitions from classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.base import Kind
from shardsdk.kinds.declaration import Declaration, declaration_of
from shardsdk.kinds.markers import Column
from shardsdk.kinds.versions import version_schema

_AGE: Final = Column("Age", path=".metadata.creationTimestamp", type="date")


def crd_of(*versions: type[Kind]) -> dict[str, Any]:
    """The CustomResourceDefinition of a custom resource, in all its versions.

        crd_of(Website)
        crd_of(WebsiteV1Beta1, WebsiteV1)       # one of them with `storage=True`

    A field's default becomes the API server's unless it is empty; a status has
    its subresource.

    Raises: ConfigurationError when the versions are not of one kind, or none or
    several of them are said to be stored.
    """
    if not versions:
        raise ConfigurationError("crd_of takes the classes of a custom resource, one for each version")
    declared = [declaration_of(version) for version in versions]
    _check_alike(declared)
    stored = _stored(declared)
    resource = stored.resource
    names: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": stored.singular,
    }
    if stored.short_names:
        names["shortNames"] = list(stored.short_names)
    if stored.categories:
        names["categories"] = list(stored.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                _version(kind, each, stored=each is stored) for kind, each in zip(versions, declared, strict=True)
            ],
        },
    }


def crds_of(kinds: Iterable[type[Kind]]) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of these custom resources: one for each kind, whatever versions it has.

    Raises: ConfigurationError as `crd_of`.
    """
    together: dict[object, list[type[Kind]]] = {}
    for kind in kinds:
        together.setdefault(declaration_of(kind).resource.group_resource, []).append(kind)
    return [crd_of(*versions) for versions in together.values()]


def _version(kind: type[Kind], declared: Declaration, *, stored: bool) -> dict[str, Any]:
    schema, columns = version_schema(kind)
    version: dict[str, Any] = {
        "name": declared.resource.version,
        "served": declared.served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }
    if declared.deprecated is not None:
        version |= {"deprecated": True, "deprecationWarning": declared.deprecated}
    subresources: dict[str, Any] = {"status": {}} if "status" in declared.parts else {}
    if declared.scale is not None:
        paths = {
            "specReplicasPath": declared.scale.spec_replicas,
            "statusReplicasPath": declared.scale.status_replicas,
            "labelSelectorPath": declared.scale.selector,
        }
        subresources["scale"] = {name: path for name, path in paths.items() if path is not None}
    if subresources:
        version["subresources"] = subresources
    columns += declared.columns
    if columns:
        if not any(column.name == _AGE.name for column in columns):
            columns.append(_AGE)
        version["additionalPrinterColumns"] = [_render_column(kind, column) for column in columns]
    return version


def _render_column(kind: type[Kind], column: Column) -> dict[str, Any]:
    if not column.path:
        raise ConfigurationError(
            f'{kind.__name__}: column {column.name} has no path; write `Column("{column.name}", ".spec.…")`, or put it'
            " on the field: `Annotated[int, Column(…)]`"
        )
    given = asdict(column)
    shown = {"name": column.name, "type": column.type or "string", "jsonPath": column.path}
    return shown | {name: given[name] for name in ("description", "format", "priority") if given[name]}


def _stored(declared: list[Declaration]) -> Declaration:
    said = [each for each in declared if each.storage]
    if not said and len(declared) == 1 and declared[0].storage is None:
        return declared[0]
    if len(said) != 1:
        names = ", ".join(each.resource.version for each in declared)
        raise ConfigurationError(
            f"{declared[0].resource.group_resource}: of the versions {names} exactly one has to be declared with"
            f" storage=True; {len(said)} are"
        )
    return said[0]


def _check_alike(declared: list[Declaration]) -> None:
    mine, versions = declared[0].resource, [each.resource.version for each in declared]
    for other in (each.resource for each in declared):
        if (mine.group_resource, mine.kind, mine.namespaced) != (other.group_resource, other.kind, other.namespaced):
            raise ConfigurationError(
                f"{mine.kind} ({mine.group_resource}) and {other.kind} ({other.group_resource}) are no two versions of"
                ' one kind: group, plural, scope and `kind="…"` have to be the same'
            )
    if len(set(versions)) < len(versions):
        raise ConfigurationError(
            f"{mine.group_resource}: a version is there twice: {', '.join(versions)}; write one class for each"
        )
