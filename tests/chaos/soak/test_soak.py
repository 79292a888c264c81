"""A few seconds of what `make soak` does for an hour, and how it judges what it measures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.rig import rig_of
from tests.chaos.soak.measuring import NOISE_FILES, Life, Lives, Sample, sample, together, trend
from tests.chaos.soak.report import PICTURE, load, picture, render
from tests.chaos.soak.soaking import DRAWN, Outcome, as_json, from_json, is_flat, setup_for, soak

HOUR = 3600.0
SEED = 7


def life(
    mib_per_hour: float = 0.0, files_per_hour: float = 0.0, *, name: str = "sharder-1", until: float = HOUR
) -> Life:
    """Sampled each minute; caches fill for ten minutes, and what is measured scatters."""
    moments = [60.0 * number for number in range(int(until / 60) + 1)]
    return Life(
        name,
        1,
        [
            Sample(
                at, 100 + min(at, 600) / 10 + mib_per_hour * at / HOUR + at % 7, int(20 + files_per_hour * at / HOUR)
            )
            for at in moments
        ],
    )


@pytest.mark.parametrize(
    ("one", "flat"),
    [
        (life(), True),
        (life(-200), True),
        (life(5), True),
        (life(60), False),
        (life(0, 100), False),
        (life(0, NOISE_FILES - 1), True),
    ],
)
def test_what_grows_once_it_is_warm_is_found_and_nothing_else(one: Life, flat: bool) -> None:
    judged = one.judge(HOUR)
    assert judged is not None
    assert judged.flat is flat


def replicas(leak_per_hour: float = 0.0) -> tuple[Life, Life]:
    """Two that take turns at leading, which opens files: the first leads last."""
    one, two = Life("sharder-1", 1), Life("sharder-2", 2)
    for minute in range(61):
        leads = minute > 40
        for each, base in ((one, 90 if leads else 30), (two, 30 if leads else 90)):
            each.samples.append(Sample(minute * 60.0, 100.0, int(base + leak_per_hour * minute / 60)))
    return one, two


@pytest.mark.parametrize(("leak_per_hour", "flat"), [(0.0, True), (30.0, False)])
def test_files_of_replicas_that_take_turns_at_leading_are_judged_together(leak_per_hour: float, *, flat: bool) -> None:
    one, two = replicas(leak_per_hour)
    by_itself = one.judge(HOUR)
    assert by_itself is not None
    assert not by_itself.flat, "it came to lead"
    assert is_flat(one, by_itself) is True, "its memory is"
    both = together("sharders together", [one, two])
    assert is_flat(both, both.judge(HOUR)) is flat


def test_together_are_only_moments_at_which_all_were_there() -> None:
    one, two = replicas()
    del two.samples[10:20]
    both = together("sharders together", [one, two])
    assert len(both.samples) == 51
    assert {each.files for each in both.samples} == {120}


def test_a_slope_is_told_by_the_hour() -> None:
    found = trend([(0.0, 10.0), (1800.0, 11.0), (3600.0, 12.0)])
    assert (found.mean, round(found.per_hour, 6), round(found.growth, 6)) == (11.0, 2.0, 2.0)


def test_who_did_not_live_for_long_is_not_judged() -> None:
    assert life(until=0.5 * HOUR).judge(HOUR) is None
    assert life(until=0.2 * HOUR).judge(0.2 * HOUR) is None, "nor is anybody in a short run"


def test_a_process_that_is_started_again_lives_anew() -> None:
    lives, here = Lives(), os.getpid()
    lives.look(0.0, {"one": here, "two": here})
    lives.look(1.0, {"one": here, "two": os.getppid()})
    lives.look(2.0, {"one": here, "two": 2**30})
    assert [(each.name, len(each.samples)) for each in lives.all] == [("one", 3), ("two", 1), ("two", 1)]


def test_open_files_and_memory_are_those_of_the_process() -> None:
    before = sample(os.getpid(), 0.0)
    with open(__file__), open(__file__):
        after = sample(os.getpid(), 1.0)
    assert before is not None
    assert after is not None
    assert after.files == before.files + 2
    assert 5 < after.mib < 10_000


def outcome(*lives: Life) -> Outcome:
    return Outcome(HOUR, HOUR, 30, 7, "2026-01-01", 15, {"shard-cut-off": 2}, {}, (), True, 1, 2.0, 3, 4, lives)


def test_a_run_holds_only_if_nothing_of_ours_grows() -> None:
    assert outcome(life(), life(900, name="etcd")).held
    assert not outcome(life(), life(60)).held
    assert "**grows**" in render(outcome(life(60)))
    assert from_json(as_json(outcome(life()))).held


def test_the_picture_and_the_table_are_of_what_is_kept() -> None:
    kept = load()
    if kept is None:
        assert not PICTURE.exists()
    else:
        assert picture(kept) == PICTURE.read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_what_is_guaranteed_holds_under_one_fault_after_the_other(tmp_path: Path) -> None:
    async with rig_of(setup_for(24, lease_seconds=6), tmp_path / "run", SEED) as rig:
        found = await soak(rig, 12.0, 1.0, SEED, ("shard-killed-and-back", "leases-deleted"))
    assert found.shown == ()
    assert found.settled
    assert found.faults
    assert found.reconciles
    assert found.writes
    there = {each.name for each in found.lives if each.samples}
    assert there == {"sharder-1", "sharder-2", "shard-1", "shard-2", "shard-3", "etcd", "kube-apiserver"}
    assert all(each.mib > 1 and each.files > 2 for one in found.lives for each in one.samples)


def test_what_is_drawn_leaves_sharders_and_the_other_shards_alive() -> None:
    assert not [name for name in DRAWN if name.startswith(("sharder", "all-shards", "rolling", "apiserver", "etcd"))]
    assert "leader-killed" not in DRAWN
