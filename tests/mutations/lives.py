"""Mutations of lives: deaths of the healthy, returns that are late, missing or faked, and waits that are too long."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import NOT_PASS, UNKNOWN, NotHere, Run, Scene, violates


def _limit(scene: Scene, monitor: str, name: str) -> float:
    """A threshold of the experiment; NotHere when it has none, since the default may be longer than the run."""
    limits = scene.plan.experiment.monitors.get(monitor) or {}
    if name not in limits:
        raise NotHere
    return float(limits[name])


@violates("no_collateral")
def survivor_dies(scene: Scene) -> Run:
    """A replica that no fault was aimed at ends in the middle of the run, and is gone."""
    commit = scene.any_of(scene.inner_commits(scene.survivors))
    later = {e.seq for e in scene.body if e.member == commit.member and e.t_s > commit.t_s}
    status = scene.chance.choice([-9, -11, 1, 0])
    told = events.MemberExited(
        t_s=commit.t_s + 0.001, member=commit.member, incarnation=commit.incarnation, status=status
    )
    return scene.edited(lambda e: None if e.seq in later else [e, told] if e is commit else e)


@violates("no_collateral")
def survivor_starts_anew(scene: Scene) -> Run:
    """A replica that no fault was aimed at is started again and trains on as if nothing had been."""
    commit = scene.any_of(scene.inner_commits(scene.survivors))
    born = scene.any_of(scene.of(events.MemberStarted, member=commit.member))
    anew = replace(born, t_s=commit.t_s + 0.001, incarnation=commit.incarnation + 1)
    later = {e.seq for e in scene.body if e.member == commit.member and e.t_s > commit.t_s}

    def edit(event: Any) -> Any:
        if event.seq in later:
            return replace(event, incarnation=event.incarnation + 1)
        return [event, anew] if event is commit else event

    return scene.edited(edit)


@violates("no_collateral")
def trainer_of_a_survivor_fails(scene: Scene) -> Run:
    """The trainer of a replica that no fault was aimed at fails, and the job goes on without a word of it."""
    commit = scene.any_of(scene.inner_commits(scene.survivors))
    failed = events.TrainerFailed(
        t_s=commit.t_s + 0.001,
        member=commit.member,
        incarnation=commit.incarnation,
        error="mixed tensors",
    )
    return scene.inserted(commit, failed)


@violates("no_collateral")
def trainer_of_a_survivor_is_built_anew(scene: Scene) -> Run:
    """In one life of a survivor a second trainer is built."""
    commit = scene.any_of(scene.inner_commits(scene.survivors))
    built = scene.any_of(scene.of(events.TrainerStarted, member=commit.member))
    return scene.inserted(commit, replace(built, t_s=commit.t_s + 0.001))


@violates("no_collateral")
def control_plane_dies(scene: Scene) -> Run:
    """Controller or lighthouse end, though no fault was aimed at them."""
    members = scene.plan.topology.members
    member = scene.any_of(one for one in (*members("lighthouse"), *members("controller")) if one not in scene.aimed)
    commit = scene.any_of(scene.inner_commits())
    told = events.MemberExited(t_s=commit.t_s + 0.001, member=member, incarnation=1, status=-9)
    return scene.inserted(commit, told)


@violates("no_collateral")
def returned_replica_dies_again(scene: Scene) -> Run:
    """A replica that had come back from its fault ends once more, of its own."""
    death = scene.any_of(scene.deaths())
    commit = scene.any_of([step for step in scene.inner_commits([death.member]) if step.incarnation > death.lived])
    told = events.MemberExited(t_s=commit.t_s + 0.001, member=death.member, incarnation=commit.incarnation, status=1)
    return scene.inserted(commit, told)


@violates("replicas_rejoin")
def victim_never_returns(scene: Scene) -> Run:
    """Nothing is heard of a replica after it was killed."""
    death = scene.any_of(scene.deaths())
    return scene.dropped(scene.since(death, events.Event))


@violates("replicas_rejoin")
def victim_returns_and_never_commits(scene: Scene) -> Run:
    """A replica is started, built and healed, and then commits nothing."""
    death = scene.any_of(scene.deaths())
    return scene.changed(
        [step for step in scene.since(death, events.Step) if step.committed],
        lambda step: replace(step, committed=False, tokens=0, digest=None, error="peer is gone"),
    )


@violates("replicas_rejoin", "one_quorum", "history_kept")
def victim_returns_alone(scene: Scene) -> Run:
    """A replica that was killed trains on in a quorum of its own."""
    death = scene.any_of(scene.deaths())
    return scene.changed(
        scene.since(death, events.Step), lambda step: replace(step, quorum_id=step.quorum_id + 9000, participants=1)
    )


@violates("replicas_rejoin")
def victim_returns_too_late(scene: Scene) -> Run:
    """Once a replica could come back everything happens more slowly, its return after its limit."""
    death = scene.any_of(scene.deaths())
    limit_s = _limit(scene, "replicas_rejoin", "within_s_max")
    back_s = min(step.t_s for step in scene.since(death, events.Step) if step.committed)
    due_s = scene.due_s(death)
    factor = (limit_s + scene.chance.uniform(0.5, 5.0)) / (back_s - due_s) + 0.1
    return scene.stretched(due_s, lambda late_s: late_s * factor)


@violates("replicas_rejoin", outcomes=NOT_PASS)
def victim_returns_in_no_new_life(scene: Scene) -> Run:
    """A replica that was killed is heard again in the life that was killed."""
    death = scene.any_of(scene.deaths())

    def edit(event: Any) -> Any:
        if event.member != death.member or event.incarnation <= death.lived:
            return event
        if isinstance(event, events.MemberStarted | events.TrainerStarted):
            return None
        return replace(event, incarnation=death.lived)

    return scene.edited(edit)


@violates("replicas_rejoin", outcomes=NOT_PASS)
def victim_returns_under_its_old_number(scene: Scene) -> Run:
    """A replica that was killed is started anew, and its new life has the number of the old one."""
    death = scene.any_of(scene.deaths())
    number = scene.chance.randint(0, death.lived)
    mine = [e for e in scene.events if e.member == death.member and e.incarnation > death.lived]
    return scene.changed(mine, lambda event: replace(event, incarnation=number))


@violates("replicas_rejoin", outcomes=NOT_PASS)
def victim_trains_without_a_trainer(scene: Scene) -> Run:
    """A replica came back, but no trainer was ever built in its new life."""
    death = scene.any_of(scene.deaths())
    return scene.dropped(scene.since(death, events.TrainerStarted))


@violates("replicas_rejoin", outcomes=NOT_PASS)
def victim_trains_without_being_started(scene: Scene) -> Run:
    """A replica came back, but its new life was never begun."""
    death = scene.any_of(scene.deaths())
    return scene.dropped(scene.since(death, events.MemberStarted))


@violates("fault_in_force", "history_kept", outcomes=NOT_PASS)
def dead_replica_trains_on_beside_its_successor(scene: Scene) -> Run:
    """While a replica trains in its new life, the killed one tries steps too."""
    death = scene.any_of(scene.deaths())
    commit = scene.any_of([step for step in scene.inner_commits([death.member]) if step.incarnation > death.lived])
    return scene.inserted(commit, replace(commit, t_s=commit.t_s + 0.01, incarnation=death.lived))


@violates("history_kept", "same_state", outcomes=NOT_PASS)
def victim_heals_to_another_step(scene: Scene) -> Run:
    """A replica loads the state of one step and goes on from another."""
    death = scene.any_of(scene.deaths())
    heals = scene.since(death, events.HealStarted, events.HealEnded)
    back = scene.chance.randint(1, 5)
    return scene.changed(heals, lambda heal: replace(heal, step=max(0, heal.step - back)))


@violates("survivors_continue")
def survivors_wait_too_long(scene: Scene) -> Run:
    """After a fault the survivors' next commit comes later than allowed."""
    limit_s = _limit(scene, "survivors_continue", "gap_s_max")
    proof = scene.any_of(scene.proofs())
    if not any(one.t_s > proof.t_s for survivor in scene.survivors for one in scene.commits(survivor)):
        raise NotHere
    return scene.delayed(proof.t_s, limit_s + scene.chance.uniform(0.1, 10.0))


@violates("survivors_continue")
def one_survivor_is_left_behind(scene: Scene) -> Run:
    """One of the survivors commits nothing any more after a fault, while the others go on."""
    proof = scene.any_of(scene.proofs())
    limit_s = _limit(scene, "survivors_continue", "gap_s_max")
    if len(scene.survivors) < 2 or scene.drain.t_s - proof.t_s <= limit_s:
        raise NotHere
    survivor = scene.any_of(scene.survivors)
    return scene.dropped([one for one in scene.commits(survivor) if one.t_s > proof.t_s])


@violates("survivors_continue", "progress")
def job_stalls(scene: Scene) -> Run:
    """At some step all wait longer than any limit, without a fault."""
    gap_s = _limit(scene, "progress", "stall_s_max") + scene.chance.uniform(0.5, 10.0)
    commit = scene.any_of(scene.shared_commits())
    return scene.delayed(max(one.t_s for one in scene.together(commit)), gap_s)


@violates("survivors_continue", "progress", outcomes=NOT_PASS)
def job_never_trains_again(scene: Scene) -> Run:
    """From some step on nobody commits anything, and all are alive."""
    commit = scene.any_of(scene.shared_commits())
    limit_s = _limit(scene, "progress", "stall_s_max")
    silent = scene.dropped([one for one in scene.of(events.Step) if one.step > commit.step])
    return Scene(silent, scene.chance).delayed(scene.drain.t_s - 0.001, limit_s + 1.0)


@violates("progress", "survivors_continue", outcomes=UNKNOWN)
def nobody_ever_commits(scene: Scene) -> Run:
    """All tried, and no step was ever committed."""
    return scene.changed(scene.commits(), committed=False, tokens=0, digest=None)
