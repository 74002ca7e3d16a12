"""The shapes that a page draws: lanes without holes, bars whose parts make the whole, few of them in a long run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.model.history import History
from chaos.report import record
from chaos.report.lanes import _WORSE, BANDS_MAX, SEEN_SHARE_MIN, STATES, Chart, Lane, Watch, _merged
from tests.golden import recorded
from tests.golden.recorded import lay_out


def chart(name: str) -> Chart:
    run = recorded.load(name)
    history, watch = History(run.plan.topology), Watch(run.plan)
    for event in run.events:
        history.apply(event)
        watch.see(event, history)
    return watch.chart(history.past)


def states(lane: Lane) -> list[str]:
    return [span.state for span in lane.spans]


@pytest.mark.parametrize("name", recorded.names())
def test_lanes_have_no_holes_and_end_with_the_run(name: str) -> None:
    drawn = chart(name)
    for lane in drawn.lanes:
        for one, later in pairwise(lane.spans):
            assert one.left + one.width == pytest.approx(later.left, abs=0.02)
        assert lane.spans[-1].left + lane.spans[-1].width == pytest.approx(100, abs=0.02)
        assert set(states(lane)) <= set(STATES)
    assert all(0 <= band.left <= 100 and band.left + band.width <= 100.01 for band in drawn.bands)


def test_a_lost_replica_is_down_is_built_and_heals() -> None:
    lanes = {lane.name: states(lane) for lane in chart("kubernetes-replica-lost").lanes}
    (victim,) = (name for name, told in lanes.items() if "down" in told)
    told = lanes.pop(victim)
    assert told[told.index("down") :] == ["down", "starting", "waiting", "healing", "training", "ended"]
    assert not any({"down", "healing", "silent"} & set(others) for others in lanes.values())


def test_a_frozen_replica_is_silent_though_it_never_left() -> None:
    lanes = {lane.name: states(lane) for lane in chart("process-freeze").lanes}
    assert [name for name, told in lanes.items() if "silent" in told] == ["replica-2"]
    assert "down" not in lanes["replica-2"]


def test_numbers_of_faults_do_not_cover_each_other() -> None:
    bands = chart("toy-storm").bands
    assert [band.number for band in bands] == list(range(1, len(bands) + 1)) and len(bands) <= BANDS_MAX
    for row in {band.row for band in bands}:
        lefts = [band.left for band in bands if band.row == row]
        assert all(later - one >= 7 for one, later in pairwise(lefts))


@given(
    st.lists(
        st.tuples(st.one_of(st.floats(0, 1e-2), st.floats(1, 100)), st.sampled_from(list(STATES))),
        min_size=1,
        max_size=2000,
    )
)
def test_however_many_changes_few_are_drawn_and_the_worst_is_kept(told: list[tuple[float, str]]) -> None:
    pieces, t_s = [], 0.0
    for lasted_s, state in told:
        pieces.append((t_s, t_s + lasted_s, state))
        t_s += lasted_s
    rank = _WORSE.__getitem__
    assert min(STATES, key=rank) == "ended" and max(STATES, key=rank) == "down"
    drawn = _merged(pieces, SEEN_SHARE_MIN * t_s, rank)
    assert len(drawn) <= 2 / SEEN_SHARE_MIN + 2
    for begin_s, end_s, state in pieces:
        if end_s - begin_s >= SEEN_SHARE_MIN * t_s:  # What can be seen is shown as what it was.
            assert any(one[0] <= begin_s and end_s <= one[1] and one[2] == state for one in drawn)
    assert drawn[0][0] == 0.0 and drawn[-1][1] == t_s
    assert all(one[1] == later[0] for one, later in pairwise(drawn))
    assert max(rank(state) for *_, state in drawn) == max(rank(state) for *_, state in pieces)


@pytest.mark.parametrize("name", recorded.names())
def test_the_parts_of_a_bar_make_the_whole(name: str, tmp_path: Path) -> None:
    told = record.read(lay_out(recorded.load(name), tmp_path / "run"))
    bars, total = told.bars()
    assert len(bars) == total
    for bar in bars:
        assert sum(part.lasted_s for part in bar.parts) == pytest.approx(bar.lasted_s, abs=1e-6)
    rejoin = {finding.monitor: finding for finding in told.verdict.findings}.get("replicas_rejoin")
    if rejoin and (boot_s := rejoin.measures["boot_s"]) is not None:
        assert any(part.name == "boot" and abs(part.lasted_s - boot_s) < 0.5 for bar in bars for part in bar.parts)
