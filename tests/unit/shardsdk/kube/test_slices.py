"""What a slice takes of a watch that goes on while ranges come and go."""

from __future__ import annotations

from shardsdk.kube.identity import Identity
from shardsdk.kube.selectors import Selector
from shardsdk.kube.slices import Slice
from shardsdk.protocol.ranges import NOWHERE, SPACE, HashBy, HashRanges, point_of

HERE, THERE = Identity("default", "a", "1", "1"), Identity("blue", "a", "2", "1")


def around(namespace: str) -> HashRanges:
    return HashRanges.of((point_of(namespace), point_of(namespace) + 1))


def test_news_of_what_was_listed_beside_the_watch_counts_from_the_version_of_that_list_on() -> None:
    part = Slice(HashBy.NAMESPACE)
    part.want(around("default"))
    part.begin()
    part.want(around("default") | around("blue"))
    assert part.missing == around("blue")
    part.listed(part.missing, "20")
    part.ask(Selector(), part.shown)
    assert part.takes(HERE, "11"), "no list has shown that"
    assert not part.takes(THERE, "20"), "the list is newer, and may have shown its end"
    assert part.takes(THERE, "21")
    assert part.takes(THERE, "of another kind"), "what cannot be compared may be news"


def test_each_list_counts_for_its_own_ranges() -> None:
    part = Slice(HashBy.NAMESPACE)
    part.want(around("default") | around("blue"))
    part.listed(around("default"), "20")
    part.listed(around("blue"), "30")
    part.ask(Selector(), part.shown)
    assert part.takes(HERE, "25"), "lost otherwise"
    assert not part.takes(THERE, "25")


def test_a_list_of_everything_ends_what_was_known_of_others() -> None:
    part = Slice(HashBy.NAMESPACE)
    part.want(around("default"))
    part.listed(around("default"), "20")
    part.begin()
    part.ask(Selector(), part.shown)
    assert part.takes(HERE, "5"), "etcd came back from a backup"


def test_what_is_not_wanted_any_more_is_to_be_forgotten_and_listed_anew_when_it_comes_back() -> None:
    part = Slice(HashBy.NAMESPACE)
    part.want(around("default") | around("blue"))
    part.begin()
    assert part.want(around("default")) == around("blue")
    part.ask(Selector(), around("default") | around("blue"))
    assert not part.takes(THERE, "99")
    part.want(around("default") | around("blue"))
    assert part.missing == around("blue")
    assert part.want(NOWHERE) == around("default")


def test_an_object_that_was_not_asked_for_shows_that_the_server_does_not_filter() -> None:
    part = Slice(HashBy.NAMESPACE)
    part.want(around("default"))
    part.begin()
    told = [part.filtered]
    asked = part.ask(Selector(labels="a=b"), part.shown)
    start, end = f"0x{point_of('default'):016x}", f"0x{point_of('default') + 1:016x}"
    assert asked == Selector("a=b", "", f"shardRange(object.metadata.namespace, '{start}', '{end}')")
    part.takes(HERE, "1")
    told.append(part.filtered)
    part.takes(THERE, "2")
    told.append(part.filtered)
    part.ask(Selector(), HashRanges.of((0, SPACE)))
    told.append(part.filtered)  # another server may answer
    assert told == [None, True, False, True]
