"""The frame of a run: what a journal must have around that which monitors judge."""

from __future__ import annotations

import msgspec
from journals import Story, about, lost_and_back, numbered, steady

from chaos.api import Outcome, events
from chaos.check import Judges, digest
from chaos.model.verdict import Verdict


def verdict(story: Story, times: int = 1) -> Verdict:
    told = story.alter(about(events.RunStarted), plan=digest(story.plan)).journal()
    judges = Judges(story.plan)
    for event in numbered(told * times):
        judges.observe(event)
    return judges.verdict()


def test_a_whole_run_passes() -> None:
    for story in (steady(), lost_and_back()):
        assert verdict(story).outcome is Outcome.PASS


def test_a_phase_that_was_left_out() -> None:
    for phase in ("deploy", "baseline", "disturb", "quiesce"):
        found = verdict(lost_and_back().drop(about(events.PhaseStarted, phase=phase)))
        assert (found.outcome, found.reasons) == (Outcome.UNKNOWN, (f"the run left out {phase}",))


def test_phases_after_one_that_failed_are_not_missed() -> None:
    story = steady().drop(about(events.PhaseStarted, phase="quiesce"))
    (disturb,) = [event for event in story.told if about(events.PhaseStarted, phase="disturb")(event)]
    story.told.append(events.PhaseFailed(t_s=disturb.t_s + 1, member="runner", phase="disturb", reason="too slow"))
    assert verdict(story).reasons == ("the disturb phase failed: too slow",)


def test_two_runs_in_one_journal() -> None:
    story = steady()
    found = verdict(story, times=2)
    assert found.outcome is not Outcome.PASS
    assert f"the journal holds more than one run: another one begins at event {len(story.told)}" in found.reasons


def test_another_plan() -> None:
    story = steady()
    told = story.alter(about(events.RunStarted), plan=digest(story.plan)).journal()
    judges = Judges(msgspec.structs.replace(story.plan, workload=Story(replicas=4).workload))
    for event in told:
        judges.observe(event)
    assert "the plan is not the one that was run: plan.json was changed or exchanged" in judges.verdict().reasons
