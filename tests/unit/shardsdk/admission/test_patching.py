from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.admission.patching import carried_over, json_patch, same
from shardsdk.kinds.wire import written_out
from shardsdk.testing.patching import apply_json_patch
from tests.unit.shardsdk.admission.kinds import Route, Website, website

TEXTS = st.text("ab~/", min_size=1, max_size=3)
VALUES = st.recursive(
    st.integers(0, 3) | st.booleans() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def sent(thing: Any) -> bytes:
    """As it goes over the wire: of Python's own values 1 and True are equal."""
    return msgspec.json.encode(thing, order="sorted")


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_one_object_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert sent(apply_json_patch(before, json_patch(before, after))) == sent(after)


@given(OBJECTS, OBJECTS)
def test_what_did_not_change_stays_as_it_came(there: dict[str, Any], before: dict[str, Any]) -> None:
    assert sent(carried_over(there, before, before)) == sent(there)


@given(OBJECTS, OBJECTS)
def test_without_anything_unknown_it_is_what_the_function_made(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert sent(carried_over(before, before, after)) == sent(after)


@pytest.mark.parametrize(
    ("before", "after"), [(1, True), (False, 0), ([0, 1], [0, True]), ({"a": [{"b": 1.0}]}, {"a": [{"b": True}]})]
)
def test_a_number_that_becomes_true_or_false_has_changed(before: Any, after: Any) -> None:
    there, wanted = {"value": before, "other": 1}, {"value": after, "other": 1}
    patch = json_patch(there, carried_over(there, there, wanted))
    assert sent(apply_json_patch(there, patch)) == sent(wanted)
    assert not same(there, wanted)


def test_a_number_is_the_same_with_and_without_a_fraction_of_nothing() -> None:
    assert not json_patch({"value": [1]}, {"value": [1.0]})
    assert same({"value": [1, True]}, {"value": [1.0, True]})


def changed(there: dict[str, Any], change: Any) -> Any:
    """What becomes of an object when `change` is done to its Python form."""
    thing = msgspec.convert(there, Website)
    before = written_out(thing)
    change(thing)
    return carried_over(there, before, written_out(thing))


def test_unknown_fields_stay() -> None:
    def change(thing: Website) -> None:
        thing.spec.replicas = 3

    assert changed(website(), change) == website(replicas=3)


def test_a_value_goes_back_to_its_default() -> None:
    def change(thing: Website) -> None:
        thing.spec.replicas = 1

    assert changed(website(replicas=3), change) == website(replicas=1)


def test_what_is_set_to_none_is_removed() -> None:
    def change(thing: Website) -> None:
        thing.spec.tier = None

    assert changed(website(tier="gold"), change) == website()


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_entries_of_lists_keep_what_their_class_does_not_know(order: slice) -> None:
    def change(thing: Website) -> None:
        thing.spec.routes[0].weight = 9
        thing.spec.routes = [*thing.spec.routes[order], Route("new")]

    there = website(routes=[{"name": "a", "weight": 1, "tls": True}, {"name": "b", "later": 1}])
    kept = [{"name": "a", "weight": 9, "tls": True}, {"name": "b", "later": 1}]
    assert changed(there, change) == website(routes=[*kept[order], {"name": "new"}])


def test_an_entry_that_goes_takes_only_its_own_with_it() -> None:
    def change(thing: Website) -> None:
        del thing.spec.routes[0]
        thing.spec.routes[0].path = "/b"

    there = website(routes=[{"name": "a", "tls": True}, {"name": "b", "later": 1}])
    assert changed(there, change) == website(routes=[{"name": "b", "later": 1, "path": "/b"}])


@pytest.mark.parametrize("by_place", [True, False])
def test_an_entry_without_a_name_is_the_one_in_its_place_only_if_asked_for(by_place: bool) -> None:
    there = {"guests": [{"passport": "a", "room": 1}, {"passport": "b", "room": 2}]}
    before = {"guests": [{"passport": "a"}, {"passport": "b"}]}
    changed = carried_over(there, before, {"guests": [{"passport": "c"}, {"passport": "b"}]}, by_place=by_place)
    first = {"passport": "c", "room": 1} if by_place else {"passport": "c"}
    assert changed == {"guests": [first, {"passport": "b", "room": 2}]}
