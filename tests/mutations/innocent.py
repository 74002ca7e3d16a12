"""Mutations that harm nothing: what differs between one good run and another. Every monitor must still pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import NotHere, Run, Scene, harmless


@harmless
def arrived_in_another_order(scene: Scene) -> Run:
    """Events of members reach the journal later than they happened, each member's in their order."""
    latest: dict[str, float] = {}
    arrivals = []
    for event in scene.events:
        late_s = scene.chance.uniform(0.0, 0.2) if event.member in scene.replicas else 0.0
        arrival_s = max(latest.get(event.member, 0.0), event.t_s + late_s)
        if event.member == "runner":
            arrival_s = max(latest.get("", 0.0), event.t_s)
        latest[event.member] = arrival_s
        latest[""] = max(latest.get("", 0.0), event.t_s)
        arrivals.append((arrival_s, event))
    return scene.with_events(event for _, event in sorted(arrivals, key=lambda pair: pair[0]))


@harmless
def commits_of_a_step_swapped(scene: Scene) -> Run:
    """Two members' commits of one step arrived in the other order."""
    commit = scene.any_of(scene.shared_commits())
    other = scene.any_of(one for one in scene.together(commit) if one.member != commit.member)
    between = [e for e in scene.events if min(commit.seq, other.seq) < e.seq < max(commit.seq, other.seq)]
    if any(e.member in (commit.member, other.member) for e in between):
        raise NotHere
    swap = {commit.seq: other, other.seq: commit}
    return scene.edited(lambda e: swap.get(e.seq, e))


@harmless
def later_start(scene: Scene) -> Run:
    """The run took longer to begin: all happened later by the same time."""
    by_s = scene.chance.uniform(1.0, 10_000.0)
    return scene.edited(lambda e: replace(e, t_s=e.t_s + by_s))


@harmless
def another_day(scene: Scene) -> Run:
    """The wall clock, the versions, pids and addresses are others."""

    def edit(event: Any) -> Any:
        match event:
            case events.RunStarted():
                return replace(event, wall_s=event.wall_s + 1e7, versions={"torch": "3.0.0"})
            case events.MemberStarted():
                return replace(event, pid=event.pid + 7, address="192.0.2.1")
            case events.TrainerStarted():
                return replace(event, pid=99, replica_id=f"{event.member}:0", boot_s={})
        return event

    return scene.edited(edit)


@harmless
def slower_machine(scene: Scene) -> Run:
    """Everything takes longer, within the limits of the experiment."""
    limits = scene.plan.experiment.monitors
    rejoin_s = (limits.get("replicas_rejoin") or {}).get("within_s_max", 120.0)
    gap_s = (limits.get("survivors_continue") or {}).get("gap_s_max", 30.0)
    stall_s = (limits.get("progress") or {}).get("stall_s_max", 60.0)
    slowest_s, back_s = max(_waits(scene)), max([1.0, *_returns(scene)])
    room = min(rejoin_s / back_s, gap_s / slowest_s, stall_s / slowest_s) * 0.9
    if room <= 1.0:
        raise NotHere
    factor = scene.chance.uniform(1.0, room)
    return scene.edited(lambda e: replace(e, t_s=e.t_s * factor))


def _returns(scene: Scene) -> Iterator[float]:
    """How long each replica that was taken out was away, with the time of its fault."""
    for started in scene.faults():
        for member in scene.targets(started) & set(scene.replicas):
            later = [commit.t_s for commit in scene.commits(member) if commit.t_s > started.t_s]
            gaps = [after - before for before, after in itertools.pairwise([started.t_s, *later])]
            yield max(gaps, default=0.0)


def _waits(scene: Scene) -> list[float]:
    """The waits of each replica from one commit to the next, and to the end."""
    waits = [1.0]
    for member in scene.survivors or scene.replicas:
        times = [commit.t_s for commit in scene.commits(member)] + [scene.drain.t_s]
        waits += [after - before for before, after in itertools.pairwise(times)]
    return waits


@harmless
def digests_now_and_then(scene: Scene) -> Run:
    """Digests are taken every few steps, and around heals."""
    period = scene.chance.randint(2, 5)
    healed = {heal.step + 1 for heal in scene.of(events.HealEnded)}
    undue = [one for one in scene.of(events.Step) if one.step % period and one.step not in healed]
    return scene.changed(undue, digest=None)


@harmless
def step_tried_in_vain(scene: Scene) -> Run:
    """Before a commit all tried that step once in vain, and say why."""
    group = scene.together(scene.any_of(scene.shared_commits()))
    why = "RuntimeError: [gloo] connection reset by peer"
    seqs = {one.seq for one in group}

    def edit(event: Any) -> Any:
        if event.seq not in seqs:
            return event
        told = replace(event, t_s=event.t_s - 0.02, committed=False, tokens=0, loss=None, digest=None, error=why)
        return [told, event]

    return scene.edited(edit)


@harmless
def quorum_told_again(scene: Scene) -> Run:
    """A member tells of the quorum that it is in once more."""
    quorum = scene.any_of(scene.of(events.Quorum))
    return scene.inserted(quorum, replace(quorum, heal=False))


@harmless
def quorum_renewed(scene: Scene) -> Run:
    """From some step on the same members train in a newer quorum."""
    commit = scene.any_of(scene.shared_commits())
    told = [
        events.Quorum(
            t_s=one.t_s - 0.03,
            member=one.member,
            incarnation=one.incarnation,
            quorum_id=one.quorum_id + 1,
            step=one.step - 1,
            participants=one.participants,
            members=tuple(sorted(other.member for other in scene.together(one))),
            max_step=one.step - 1,
            heal=False,
        )
        for one in scene.together(commit)
    ]
    first = min(scene.together(commit), key=lambda one: one.seq)
    since = {one.seq for one in scene.of(events.Step) if one.step >= commit.step or one.quorum_id > commit.quorum_id}
    since |= {one.seq for one in scene.of(events.Quorum) if one.quorum_id > commit.quorum_id}

    def edit(event: Any) -> Any:
        newer = replace(event, quorum_id=event.quorum_id + 1) if event.seq in since else event
        return [*told, newer] if event.seq == first.seq else newer

    return scene.edited(edit)


@harmless
def quorums_counted_from_elsewhere(scene: Scene) -> Run:
    """The lighthouse had given out other ids before this job."""
    by = scene.chance.randint(1, 10**6)
    return scene.changed(
        scene.of(events.Step, events.Quorum), lambda event: replace(event, quorum_id=event.quorum_id + by)
    )


@harmless
def fault_point_hit_again(scene: Scene) -> Run:
    """A trainer did to itself what it was ordered to once more."""
    hit = scene.any_of(scene.of(events.FaultPointHit))
    return scene.inserted(hit, replace(hit, t_s=hit.t_s + 0.001))


@harmless
def controller_hears_late_of_a_loss(scene: Scene) -> Run:
    """The controller learned of a lost life only when the next one had begun."""
    death = scene.any_of(scene.deaths())
    back = scene.since(death, events.Step)[0]
    told = events.MemberLost(
        t_s=back.t_s,
        member="controller",
        incarnation=1,
        name=death.member,
        member_incarnation=death.lived,
        reason="connection closed",
    )
    return scene.inserted(back, told)


@harmless
def taken_for_silent(scene: Scene) -> Run:
    """The controller found a trainer silent that went on, early in the run."""
    step = scene.of(events.Step)[0]
    return scene.inserted(step, _lost(step.t_s, step.member, step.incarnation, "silent"))


@harmless
def loss_is_told(scene: Scene) -> Run:
    """The controller told the others not to wait for one that had died."""
    death = scene.any_of(scene.deaths())
    back = scene.since(death, events.Step)[0]
    return scene.inserted(back, _lost(back.t_s, death.member, death.lived, "ended"))


def _lost(t_s: float, name: str, incarnation: int, reason: str) -> events.TrainerLost:
    return events.TrainerLost(
        t_s=t_s, member="controller", incarnation=1, name=name, member_incarnation=incarnation, reason=reason
    )


@harmless
def attached_at_the_second_try(scene: Scene) -> Run:
    """The controller could not reach a member at once."""
    attached = scene.any_of(scene.of(events.MemberAttached))
    told = events.AttachFailed(
        t_s=attached.t_s - 0.01,
        member=attached.member,
        incarnation=attached.incarnation,
        name=attached.name,
        member_incarnation=attached.member_incarnation,
        attempt=1,
        error="connection refused",
        retry_in_s=0.5,
    )
    return scene.inserted(attached, told, before=True)


@harmless
def heal_served_told_late(scene: Scene) -> Run:
    """A donor tells that it gave its state away when the other trains already."""
    served = scene.any_of(scene.of(events.HealServed))
    later = [one for one in scene.commits(served.member) if one.t_s > served.t_s]
    place = scene.any_of(later[:3])
    kept = [event for event in scene.events if event is not served]
    index = kept.index(place) + 1
    return scene.with_events([*kept[:index], replace(served, t_s=place.t_s + 0.001), *kept[index:]])


@harmless
def first_new_life_failed(scene: Scene) -> Run:
    """A replica that was killed died once more before it was built, and came back in the life after that."""
    death = scene.any_of(scene.deaths())
    born = next(iter(scene.since(death, events.MemberStarted)), None)
    if born is None:
        raise NotHere
    died = events.MemberExited(t_s=born.t_s + 0.002, member=death.member, incarnation=born.incarnation, status=1)

    def edit(event: Any) -> Any:
        if event.member != death.member or event.incarnation <= death.lived:
            return event
        newer = replace(event, incarnation=event.incarnation + 1)
        return [event, died, replace(newer, t_s=event.t_s + 0.004)] if event is born else newer

    return scene.edited(edit)


@harmless
def last_commit_died_with_the_victim(scene: Scene) -> Run:
    """A victim finished a step that its peers, seeing it vanish, discarded and trained again in the next quorum."""
    death = scene.any_of(scene.deaths())
    last = [one for one in scene.commits(death.member) if one.incarnation == death.lived][-1]
    again = [one for one in scene.commits() if one.step == last.step + 1 and one.member != death.member]
    if not again or min(one.t_s for one in again) < last.t_s or any(one.quorum_id == last.quorum_id for one in again):
        raise NotHere
    batch = None if last.batch is None else last.batch + 1
    told = replace(last, t_s=last.t_s + 0.001, step=last.step + 1, digest="e" * 32, batch=batch)
    fields = {"committed": False, "tokens": 0, "digest": None, "gradient_scale": None, "error": "peer is gone"}
    vain = [
        replace(one, t_s=last.t_s + 0.002, quorum_id=last.quorum_id, participants=last.participants, **fields)
        for one in again
    ]
    return scene.inserted(last, told, *vain)


@harmless
def noise_in_drain(scene: Scene) -> Run:
    """While the job is being ended trainers fail, members are killed and words are lost."""
    member = scene.any_of(scene.replicas)
    at = {"t_s": scene.drain.t_s + 0.01, "member": member, "incarnation": 1}
    step = replace(scene.commits(member)[-1], t_s=scene.drain.t_s + 0.01, digest="d" * 32, participants=1, loss=None)
    return scene.inserted(
        scene.drain,
        step,
        events.TrainerFailed(**at, error="RuntimeError: connection closed"),
        events.MemberExited(**at, status=-9),
        events.EventsLost(**at, reason="stream closed"),
    )


@harmless
def other_losses(scene: Scene) -> Run:
    """The data was in another order: other losses and norms, and some are huge."""
    return scene.edited(
        lambda e: replace(e, loss=e.loss and e.loss * scene.chance.uniform(0.1, 100.0)) if _is_step(e) else e
    )


def _is_step(event: events.Event) -> bool:
    return isinstance(event, events.Step)
