"""Mutations of a run's frame: its begin, phases and end, blind windows, and clocks that do not agree."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import JOURNAL, NOT_PASS, UNKNOWN, NotHere, Run, Scene, violates


@violates(JOURNAL, outcomes=UNKNOWN)
def run_never_ended(scene: Scene) -> Run:
    """The last event is missing: the runner was killed."""
    return scene.dropped([scene.events[-1]])


@violates(JOURNAL, outcomes=UNKNOWN)
def run_cut_off(scene: Scene) -> Run:
    """The journal stops anywhere."""
    return scene.with_events(scene.events[: scene.chance.randrange(1, len(scene.events))])


@violates(JOURNAL, outcomes=UNKNOWN)
def run_broken_off(scene: Scene) -> Run:
    """The run was interrupted."""
    return scene.changed([scene.events[-1]], completed=False, reason="interrupted")


@violates(JOURNAL, outcomes=UNKNOWN)
def run_never_started(scene: Scene) -> Run:
    """The first event is missing."""
    return scene.dropped([scene.events[0]])


@violates(JOURNAL, outcomes=UNKNOWN)
def another_plan(scene: Scene) -> Run:
    """The plan was exchanged after the run: another seed stands in it."""
    experiment = replace(scene.plan.experiment, seed=scene.plan.experiment.seed + 1)
    return replace_plan(scene, experiment=experiment)


@violates(JOURNAL, outcomes=UNKNOWN)
def softer_limits(scene: Scene) -> Run:
    """A limit was made softer after the run, so that it would pass."""
    monitors = scene.plan.experiment.monitors | {"progress": {"stall_s_max": 3600.0}}
    return replace_plan(scene, experiment=replace(scene.plan.experiment, monitors=monitors))


def replace_plan(scene: Scene, **fields: Any) -> Run:
    run = scene.with_events(scene.events)
    return Run(run.name, replace(scene.plan, **fields), run.events)


@violates(JOURNAL, outcomes=UNKNOWN)
def phase_failed(scene: Scene) -> Run:
    """A phase did not reach its aim in its time."""
    phase = scene.any_of(e for e in scene.events if isinstance(e, events.PhaseStarted))
    told = events.PhaseFailed(
        t_s=phase.t_s + 0.01, member=phase.member, phase=phase.phase, reason="not reached within 120 s"
    )
    return scene.inserted(phase, told)


@violates(JOURNAL, outcomes=UNKNOWN)
def phase_left_out(scene: Scene) -> Run:
    """The run did not go through one of its phases."""
    phases = ("baseline", "disturb", "quiesce")
    phase = scene.any_of(e for e in scene.of(events.PhaseStarted) if e.phase in phases)
    return scene.dropped([phase])


@violates(JOURNAL, "no_collateral", outcomes=NOT_PASS)
def drain_left_out(scene: Scene) -> Run:
    """Nobody said that the job was to end, and it ended."""
    return scene.dropped([scene.drain])


@violates("no_collateral", "fault_in_force", outcomes=UNKNOWN)
def safety_was_broken(scene: Scene) -> Run:
    """The live run ended early on a broken promise, which the journal does not show."""
    commit = scene.any_of(scene.inner_commits())
    told = events.SafetyBroken(t_s=commit.t_s, member="runner", monitor="same_state", reading="differs")
    return scene.inserted(commit, told)


@violates(JOURNAL, outcomes=NOT_PASS)
def two_runs_in_one_journal(scene: Scene) -> Run:
    """After its end the journal begins anew."""
    return scene.with_events([*scene.events, *scene.events])


@violates("same_state", "history_kept", "one_quorum", outcomes=UNKNOWN)
def commits_in_a_blind_window(scene: Scene) -> Run:
    """Some commits of a member did not arrive, and the journal says so."""
    commit = scene.any_of(scene.inner_commits())
    steps = range(commit.step, commit.step + scene.chance.randint(1, 4))
    gone = {one.seq for one in scene.inner_commits([commit.member]) if one.step in steps}
    told = events.EventsLost(
        t_s=commit.t_s, member=commit.member, incarnation=commit.incarnation, reason="stream closed", count=len(gone)
    )
    return scene.edited(lambda e: [told] if e is commit else None if e.seq in gone else e)


@violates("replicas_rejoin", "same_state", "no_collateral", outcomes=UNKNOWN)
def return_in_a_blind_window(scene: Scene) -> Run:
    """Of a replica that was killed nothing arrived any more, and the journal says so."""
    death = scene.any_of(scene.deaths())
    gone = scene.since(death, events.Step, events.Quorum, events.HealStarted, events.HealEnded, events.TrainerStarted)
    told = events.EventsLost(t_s=gone[0].t_s, member=death.member, incarnation=death.reborn, reason="stream closed")
    seqs = {one.seq for one in gone}
    return scene.edited(lambda e: told if e is gone[0] else None if e.seq in seqs else e)


@violates("same_state", "no_collateral", outcomes=UNKNOWN)
def events_of_nobody_known_lost(scene: Scene) -> Run:
    """Events were lost, and nobody knows whose."""
    commit = scene.any_of(scene.inner_commits())
    told = events.EventsLost(t_s=commit.t_s, member="", reason="the log stream broke", count=None)
    return scene.inserted(commit, told)


@violates("same_state", "one_quorum", outcomes=UNKNOWN)
def unreadable_event(scene: Scene) -> Run:
    """A member told something that this version cannot read."""
    commit = scene.any_of(scene.inner_commits())
    told = events.Unknown(
        t_s=commit.t_s, member=commit.member, incarnation=commit.incarnation, of_kind="step_undone", data={}
    )
    return scene.changed([commit], lambda event: told)


CLOCK_JUMP_S = (5.0, 600.0)


def _jumped(scene: Scene, member: str, since: events.Event, seconds: float) -> Run:
    return scene.edited(lambda e: replace(e, t_s=e.t_s + seconds) if e.member == member and e.seq >= since.seq else e)


@violates("one_clock", outcomes=UNKNOWN)
def clock_of_a_member_jumps_ahead(scene: Scene) -> Run:
    """From some step on one member's clock is ahead of all others."""
    commit = scene.any_of(scene.inner_commits())
    return _jumped(scene, commit.member, commit, scene.chance.uniform(*CLOCK_JUMP_S))


@violates("one_clock", outcomes=UNKNOWN)
def clock_of_a_member_falls_back(scene: Scene) -> Run:
    """From some step on one member's clock is behind all others."""
    commit = scene.any_of(scene.inner_commits())
    return _jumped(scene, commit.member, commit, -scene.chance.uniform(*CLOCK_JUMP_S))


@violates("one_clock", outcomes=UNKNOWN)
def clock_of_a_member_was_always_ahead(scene: Scene) -> Run:
    """One member's clock is ahead of all others throughout."""
    member = scene.any_of(scene.replicas)
    return _jumped(scene, member, scene.events[0], scene.chance.uniform(*CLOCK_JUMP_S))


@violates("one_clock", outcomes=UNKNOWN)
def clock_of_the_runner_runs_back(scene: Scene) -> Run:
    """When a fault is made the runner's clock runs back, so that nothing tells how long anything took."""
    started = scene.any_of(scene.faults())
    return _jumped(scene, started.member, started, -scene.chance.uniform(*CLOCK_JUMP_S))


@violates("replicas_rejoin", "survivors_continue", "same_state", "progress", outcomes=NOT_PASS)
def nothing_but_the_frame(scene: Scene) -> Run:
    """The runner went through its phases and saw no member at all."""
    frame = (events.RunStarted, events.PhaseStarted, events.RunEnded)
    if not scene.commits():
        raise NotHere
    return scene.with_events([e for e in scene.events if isinstance(e, frame)])
