"""How lists and maps of Kubernetes' own kinds merge: what the API server in memory knows, by a real one's OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from localcluster import AdminClient
from shardsdk import kinds
from shardsdk.kinds import Kind, resource_of
from shardsdk.protocol.objects import Resource
from shardsdk.testing.shapes import Shape, shape_of

Schema = dict[str, Any]
#: Of one that is no list, whether it is one field; of a list its keys, or whether it is a set or one field.
How = tuple[str, ...]


async def test_lists_and_maps_of_own_kinds_merge_as_in_the_api_server(admin: AdminClient) -> None:
    definitions = (await admin.request("GET", "/openapi/v2"))["definitions"]
    roots = dict(roots_of(definitions))
    merged = 0
    for resource in own_kinds():
        found = dict(walk(roots[resource.api_version, resource.kind], shape_of(resource, None), definitions, ""))
        assert {where: here for where, (here, _) in found.items()} == {
            where: there for where, (_, there) in found.items()
        }
        merged += sum(there[0] == "map" for _, there in found.values())
    assert merged > 200


def own_kinds() -> Iterator[Resource]:
    for name in kinds.builtin.__all__:
        found = getattr(kinds, name)
        if isinstance(found, type) and issubclass(found, Kind):
            yield resource_of(found)


def roots_of(definitions: dict[str, Schema]) -> Iterator[tuple[tuple[str, str], Schema]]:
    for each in definitions.values():
        for about in each.get("x-kubernetes-group-version-kind", ()):
            group, version = about["group"], about["version"]
            yield (f"{group}/{version}" if group else version, about["kind"]), each


def walk(
    schema: Schema, shape: Shape, definitions: dict[str, Schema], where: str
) -> Iterator[tuple[str, tuple[How, How]]]:
    """Where something may merge, and how it does here and there; what is in a field is not looked into."""
    there = {
        **resolved(schema, definitions),
        **{name: value for name, value in schema.items() if name.startswith("x-")},
    }
    if there.get("type") == "array":
        keys = there.get("x-kubernetes-list-map-keys", ())
        how: How = (there.get("x-kubernetes-list-type", "atomic"), *keys)
        ours: How = ("map", *shape.keys) if shape.keys else ("set",) if shape.is_set else ("atomic",)
        yield where, (ours, how)
        if how[0] == "map":
            yield from walk(there["items"], shape.entry, definitions, f"{where}[]")
    elif "properties" in there or "additionalProperties" in there:
        is_whole = there.get("x-kubernetes-map-type") == "atomic"
        yield where, (("whole",) if shape.is_whole else ("map by name",), ("whole",) if is_whole else ("map by name",))
        if not is_whole:
            for name, each in there.get("properties", {}).items():
                yield from walk(each, shape.at(name), definitions, f"{where}.{name}")


def resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    for each in (schema, *schema.get("allOf", ())):
        if "$ref" in each:
            return definitions[each["$ref"].rpartition("/")[2]]
    return schema
