"""`data_once`: no batch of the data is trained on twice."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import Story, about, failing, judge, judge_live, lost, lost_and_back, steady

from chaos.api import Outcome, events
from chaos.monitors.data_once import _Shard


def counting(story: Story, member: str, since_s: float, first: int) -> Story:
    """From a time on the member's batches are counted anew, from `first`."""
    steps = [e for e in story.journal() if about(events.Step, member)(e) and e.t_s >= since_s]
    for number, step in enumerate(steps, start=first):
        story.alter(lambda e, step=step: about(events.Step, member)(e) and e.t_s == step.t_s, batch=number)
    return story


def test_measures_of_a_good_run() -> None:
    """replica-1 missed steps 13 to 29 and healed in step 30: 18 of its batches were never counted."""
    found = judge(lost_and_back())["data_once"]
    assert found.reading == "99 batches counted, each once; 18 lost with replicas that were away"
    assert found.measures == {"batches_counted": 99, "batches_twice": 0, "batches_lost": 18}


def test_the_batches_of_a_replica_that_stays_away_are_lost() -> None:
    assert judge(lost().drain().end())["data_once"].measures["batches_lost"] == 5


def test_a_last_word_that_drain_cuts_off_is_no_loss() -> None:
    story = steady().drop(about(events.Step, "replica-2", step=30))
    assert judge(story)["data_once"].measures["batches_lost"] == 0


def test_a_returned_replica_that_reads_its_data_from_the_beginning() -> None:
    story = counting(lost_and_back(), "replica-1", 12.0, first=1)
    findings, broken = judge_live(story)
    found = findings["data_once"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-1 counted batch 2 in step 31, and before in step 2 (9 such commits)"
    journal = story.journal()
    evidence = [(journal[seq].member, journal[seq].step) for seq in found.evidence]  # type: ignore[attr-defined]
    assert evidence == [("replica-1", 2), ("replica-1", 31)]
    assert broken["data_once"] == found.evidence[-1]
    assert failing(findings) == {"data_once"}


def test_a_step_with_two_batches() -> None:
    """A replica commits step 20 again, with the next batch."""
    story = Story().deploy().train(20)
    story._step("replica-0", 20, True, 0.1, None)
    story.alter(lambda e: about(events.Step, "replica-0", step=20)(e) and e.t_s > story.now_s, batch=21)
    found = judge(story.train(10).drain().end())["data_once"]
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-0 committed step 20 with batch 21, and before with batch 20")


def test_each_member_has_a_shard_of_its_own() -> None:
    story = counting(steady(), "replica-2", 0.0, first=5)
    assert judge(story)["data_once"].outcome is Outcome.PASS


def test_a_batch_that_a_healing_replica_read_is_not_counted() -> None:
    story = lost_and_back().alter(about(events.Step, "replica-1", healing=True), batch=1)
    assert judge(story)["data_once"].outcome is Outcome.PASS


def test_a_batch_that_is_tried_again_is_counted_once() -> None:
    assert judge(Story().deploy().train(12).discard().train(10).drain().end())["data_once"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("untold", "reading"), [(30, "no committed step told its batch"), (4, "12 commits told of no batch")]
)
def test_commits_that_do_not_tell_their_batch(untold: int, reading: str) -> None:
    found = judge(steady().alter(lambda e: type(e) is events.Step and e.step <= untold, batch=None))["data_once"]
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, reading)


Counts = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=12)


@given(Counts)
def test_a_shard_remembers_all_that_was_counted(counts: Iterable[tuple[int, int]]) -> None:
    """Against the plain way: keep every pair."""
    shard, seen = _Shard(), set[tuple[int, int]]()
    for step, batch in counts:
        denied = any((step == s) != (batch == b) for s, b in seen)
        assert (shard.count(step, batch) is not None) == denied
        seen.add((step, batch))
