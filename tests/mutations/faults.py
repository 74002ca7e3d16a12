"""Mutations of the experiment itself: faults that were not made, not proven, not those planned, or not taken back."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chaos.api import Delete, Evict, FaultPoint, Held, Injection, Interface, LinkDown, Signal, events
from chaos.model.injections import Freeze, Lethal, Proof
from tests.mutations.mutation import UNKNOWN, NotHere, Run, Scene, violates


def _at(injection: Injection, target: str) -> Injection:
    """The same injection of another target."""
    field = "member" if isinstance(injection, Delete | Evict | Signal) else "target"
    return replace(injection, **{field: target})


def _another_target(scene: Scene, injection: Injection) -> str:
    """Another member, or another node for what hits nodes."""
    target = getattr(injection, "target", None) or getattr(injection, "member")  # noqa: B009
    nodes = scene.plan.topology.nodes()
    return scene.any_of(other for other in (nodes if target in nodes else scene.replicas) if other != target)


@violates("fault_in_force", outcomes=UNKNOWN)
def proof_lost(scene: Scene) -> Run:
    """A fault was started, and one of its injections was never read back as in force."""
    proof = scene.any_of(scene.proofs())
    same = [one for one in scene.proofs() if (one.fault_id, one.injection) == (proof.fault_id, proof.injection)]
    return scene.dropped(same)


@violates("fault_in_force", outcomes=UNKNOWN)
def proof_of_another_member(scene: Scene) -> Run:
    """What was read back is the state of another member than the target."""
    proof = scene.any_of(scene.proofs())
    other = _another_target(scene, proof.injection)
    return scene.changed([proof], proof=replace(proof.proof, member=other))


@violates("fault_in_force", "fault_reverted", outcomes=UNKNOWN)
def proof_of_another_injection(scene: Scene) -> Run:
    """What was read back in force is not what was decided."""
    proof = scene.any_of(scene.proofs())
    target = proof.proof.member
    other = Freeze(target) if not isinstance(proof.injection, Freeze) else LinkDown(target, Interface.DATA)
    return scene.changed([proof], injection=other)


@violates("fault_in_force", outcomes=UNKNOWN)
def another_member_was_hit(scene: Scene) -> Run:
    """The fault was made and proven, but of another target than the plan's."""
    started = scene.any_of(one for one in scene.faults() if _planned(scene, one))
    other = _another_target(scene, started.injections[0])

    def edit(event: Any) -> Any:
        if getattr(event, "fault_id", None) != started.fault_id:
            return event
        fields: dict[str, Any] = {}
        if isinstance(event, events.FaultStarted):
            fields = {"targets": (other,), "injections": tuple(_at(one, other) for one in event.injections)}
        elif isinstance(event, events.InjectionInForce | events.InjectionReverted):
            fields = {"injection": _at(event.injection, other), "proof": replace(event.proof, member=other)}
        return replace(event, **fields)

    return scene.edited(edit)


def _planned(scene: Scene, started: events.FaultStarted) -> bool:
    return any(fault.id == started.fault_id and fault.targets for fault in scene.plan.faults)


@violates("fault_in_force", outcomes=UNKNOWN)
def another_fault_was_made(scene: Scene) -> Run:
    """What was injected and proven is another fault than the plan's."""
    started = scene.any_of(one for one in scene.faults() if _planned(scene, one))

    def edit(event: Any) -> Any:
        if getattr(event, "fault_id", None) != started.fault_id:
            return event
        match event:
            case events.FaultStarted():
                return replace(event, injections=tuple(Freeze(target) for target in event.targets))
            case events.InjectionInForce() | events.InjectionReverted():
                return replace(event, injection=Freeze(event.proof.member))
        return event

    if any(isinstance(injection, Freeze) for injection in started.injections):
        raise NotHere
    return scene.edited(edit)


@violates("fault_in_force", outcomes=UNKNOWN)
def fault_never_started(scene: Scene) -> Run:
    """The journal has a fault's proof and not its decision."""
    return scene.dropped([scene.any_of(scene.faults())])


@violates("fault_in_force", "fault_reverted", outcomes=UNKNOWN)
def injection_failed(scene: Scene) -> Run:
    """An injection could not be made."""
    proof = scene.any_of(scene.proofs())
    told = events.InjectionFailed(
        t_s=proof.t_s, member=proof.member, fault_id=proof.fault_id, injection=proof.injection, reason="no such process"
    )
    ends = {one.seq for one in _ends(scene, proof)}
    return scene.edited(lambda event: told if event is proof else None if event.seq in ends else event)


@violates("fault_in_force", outcomes=UNKNOWN)
def fault_missed(scene: Scene) -> Run:
    """A planned fault never met its trigger; the rest of the run is a healthy one."""
    started = scene.any_of(scene.faults())
    told = events.FaultMissed(
        t_s=started.t_s, member=started.member, fault_id=started.fault_id, reason="its trigger was not met"
    )

    def edit(event: Any) -> Any:
        if event is started:
            return told
        return None if getattr(event, "fault_id", None) == started.fault_id else event

    return scene.edited(edit)


@violates("fault_in_force", outcomes=UNKNOWN)
def victim_trains_on_unharmed(scene: Scene) -> Run:
    """A replica was said to be killed, and goes on in the same life without a break."""
    death = scene.any_of(scene.deaths())
    births = (events.MemberStarted, events.MemberExited, events.TrainerStarted, events.TrainerFailed)

    def edit(event: Any) -> Any:
        if event.member != death.member or event.seq < death.started.seq or event.t_s >= scene.drain.t_s:
            return event
        if isinstance(event, (*births, events.HealStarted, events.HealEnded)):
            return None
        return replace(event, incarnation=death.lived)

    return scene.edited(edit)


@violates("fault_in_force", outcomes=UNKNOWN)
def fault_point_never_reached(scene: Scene) -> Run:
    """A trainer had the order to harm itself and never did."""
    proof = scene.any_of(scene.proofs(FaultPoint))
    order = proof.injection
    assert isinstance(order, FaultPoint)
    return scene.dropped(
        [
            hit
            for hit in scene.of(events.FaultPointHit, member=order.target)
            if (hit.point, hit.action) == (order.point.value, order.action.value)
        ]
    )


@violates("fault_in_force", outcomes=UNKNOWN)
def fault_before_the_baseline(scene: Scene) -> Run:
    """A fault was made before the job was seen to be healthy."""
    disturb = next(one for one in scene.of(events.PhaseStarted) if one.phase == "disturb")
    started = scene.any_of(scene.faults())
    early = [started, *(one for one in scene.proofs() if one.fault_id == started.fault_id)]
    seqs = {one.seq for one in early}
    moved = [replace(one, t_s=disturb.t_s - 0.1) for one in early]
    kept = [event for event in scene.events if event.seq not in seqs]
    place = kept.index(disturb)
    return scene.with_events([*kept[:place], *moved, *kept[place:]])


@violates("fault_reverted", outcomes=UNKNOWN)
def revert_lost(scene: Scene) -> Run:
    """A held injection was never read back as undone."""
    end = scene.any_of(scene.of(events.InjectionReverted))
    return scene.dropped([end])


@violates("fault_reverted", outcomes=UNKNOWN)
def revert_failed(scene: Scene) -> Run:
    """A held injection could not be undone."""
    end = scene.any_of(scene.of(events.InjectionReverted))
    told = events.RevertFailed(
        t_s=end.t_s, member=end.member, fault_id=end.fault_id, injection=end.injection, reason="the rule is still there"
    )
    return scene.changed([end], lambda event: told)


@violates("fault_reverted", outcomes=UNKNOWN)
def revert_of_another_member(scene: Scene) -> Run:
    """What was read back as undone is the state of another member than the target."""
    end = scene.any_of(scene.of(events.InjectionReverted))
    other = _another_target(scene, end.injection)
    return scene.changed([end], proof=replace(end.proof, member=other))


@violates("fault_reverted", "fault_in_force", outcomes=UNKNOWN)
def revert_before_the_fault(scene: Scene) -> Run:
    """The proof of a fault's end stands before the proof of its begin."""
    proof = scene.any_of(one for one in scene.proofs(*Held.__subclasses__()) if len(_ends(scene, one)) == 1)
    end = _ends(scene, proof)[0]
    kept = [event for event in scene.events if event is not end]
    place = kept.index(proof)
    return scene.with_events([*kept[:place], replace(end, t_s=proof.t_s - 0.01), *kept[place:]])


@violates("fault_reverted", "fault_in_force", outcomes=UNKNOWN)
def fault_ends_early(scene: Scene) -> Run:
    """A fault that was to stay for some time was taken back at once, while its target lived."""
    planned = {fault.id: fault for fault in scene.plan.faults if fault.for_s and fault.for_s >= 2 and not fault.rhythm}
    proofs = [one for one in scene.proofs(*Held.__subclasses__()) if one.fault_id in planned]
    alive = [one for one in proofs if len(_ends(scene, one)) == 1 and not _died(scene, one)]
    proof = scene.any_of(alive)
    end = _ends(scene, proof)[0]
    kept = [event for event in scene.events if event is not end]
    place = kept.index(proof) + 1
    return scene.with_events([*kept[:place], replace(end, t_s=proof.t_s + 0.1), *kept[place:]])


def _died(scene: Scene, proof: events.InjectionInForce) -> bool:
    return isinstance(proof.injection, Lethal) or any(
        exited.t_s > proof.t_s for exited in scene.of(events.MemberExited, member=proof.proof.member)
    )


def _ends(scene: Scene, proof: events.InjectionInForce) -> list[events.InjectionReverted]:
    return [
        end
        for end in scene.events
        if isinstance(end, events.InjectionReverted)
        if (end.fault_id, end.injection) == (proof.fault_id, proof.injection)
    ]


@violates("fault_reverted", outcomes=UNKNOWN)
def something_held_was_never_let_go(scene: Scene) -> Run:
    """A fault of something killed also cut a link, and that is not said to be whole again."""
    proof = scene.any_of(scene.proofs())
    made = [one.injection for one in scene.proofs()]
    links = [LinkDown(replica, Interface.CONTROL) for replica in scene.replicas]
    link = scene.any_of(link for link in links if link not in made)
    told = replace(proof, injection=link, proof=Proof(link.target, 1, "no carrier"))
    return scene.inserted(proof, told)
