"""What a mutation is, and the scene that it is made in.

    @violates("one_quorum")
    def commit_in_another_quorum(scene: Scene) -> Run:
        \"\"\"One member commits a step in a quorum of its own.\"\"\"
        return scene.changed([scene.any_of(scene.inner_commits())], quorum_id=9999)

A mutation is a pure function from a recorded run and the seed's chance to the run as it might have been. What it says
must be true of every result: that a promise is broken or evidence is missing (`violates`, with the monitors of which
one has to say so), or that nothing is (`harmless`). It raises `NotHere` when a run offers no place for it.
Events are numbered anew after a mutation, so only those of `lines` harm the numbering.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from chaos.api import Injection, Lethal, NodeDown, Outcome, events
from chaos.model.events import AnyEvent
from chaos.model.plan import Plan
from chaos.registry import monitors
from tests.golden.recorded import Recorded

Run = Recorded
Event = events.Event
T = TypeVar("T")
E = TypeVar("E", bound=Event)

JOURNAL = "journal"
"""Speaks when the verdict has a reason that no monitor gave: a flawed journal, a run without its end."""
FAIL, UNKNOWN = frozenset({Outcome.FAIL}), frozenset({Outcome.UNKNOWN})
NOT_PASS = FAIL | UNKNOWN


class NotHere(Exception):
    """The run has no place for the mutation."""


@dataclass(frozen=True)
class Mutation:
    """`speakers`: one of these monitors has to give one of `outcomes`; none for what is harmless."""

    mutate: Callable[[Scene], Run]
    speakers: frozenset[str]
    outcomes: frozenset[Outcome]

    @property
    def name(self) -> str:
        return self.mutate.__name__

    @property
    def theme(self) -> str:
        return self.mutate.__module__.rpartition(".")[2]

    @property
    def told(self) -> str:
        return (self.mutate.__doc__ or "").partition("\n")[0]

    @property
    def harmless(self) -> bool:
        return not self.speakers

    def applied(self, run: Run, seed: int) -> Run:
        """The mutated run; the same seed gives the same one. NotHere when the run has no place for it."""
        return self.mutate(Scene(run, random.Random(f"{self.name}/{run.name}/{seed}")))


@dataclass(frozen=True)
class Death:
    """A replica that a fault killed in its life `lived`, and that trained again in the life `reborn`."""

    member: str
    started: events.FaultStarted
    proof: events.InjectionInForce
    lived: int
    reborn: int


MUTATIONS: dict[str, Mutation] = {}


def violates(*speakers: str, outcomes: frozenset[Outcome] = FAIL) -> Callable[[Callable[[Scene], Run]], Mutation]:
    """Registers a mutation that one of `speakers` has to notice."""
    return lambda mutate: _registered(Mutation(mutate, frozenset(speakers), outcomes))


def harmless(mutate: Callable[[Scene], Run]) -> Mutation:
    """Registers a mutation after which every monitor still passes."""
    return _registered(Mutation(mutate, frozenset(), frozenset({Outcome.PASS})))


def _registered(mutation: Mutation) -> Mutation:
    assert mutation.name not in MUTATIONS, f"{mutation.name} is there already"
    MUTATIONS[mutation.name] = mutation
    return mutation


def judged_by_all(run: Run) -> Run:
    """The run with every monitor in its plan that passes it as it was recorded, and the experiment's own in any case.

    The others have nothing to judge there: the run is too short for them, or is older than what they look at.
    """
    named = run.plan.experiment.monitors
    findings = _with_monitors(run, dict.fromkeys(monitors()) | named).verdict().findings
    passing = [finding.monitor for finding in findings if finding.outcome is Outcome.PASS]
    return _with_monitors(run, dict.fromkeys(passing) | named)


def _with_monitors(run: Run, chosen: dict[str, Any]) -> Run:
    plan = msgspec.structs.replace(run.plan, experiment=msgspec.structs.replace(run.plan.experiment, monitors=chosen))
    return replace(run, plan=plan).of_today()


class Scene:
    """One run, read for places to mutate, and the tools to do it. Everything is chosen by the seed's `chance`."""

    def __init__(self, run: Run, chance: random.Random) -> None:
        self.run = run
        self.chance = chance
        self.events = run.events
        self.plan: Plan = run.plan
        self.replicas = run.plan.replicas()

    # Reading.

    def any_of(self, choices: Iterable[T]) -> T:
        """One of the choices by chance; NotHere when there is none."""
        pool = list(choices)
        if not pool:
            raise NotHere
        return self.chance.choice(pool)

    def of(self, *kinds: type[E], member: str | None = None) -> list[E]:
        """Events of some kinds before drain."""
        return [e for e in self.body if isinstance(e, kinds) and member in (None, e.member)]

    @cached_property
    def drain(self) -> events.PhaseStarted:
        return next(e for e in self.events if isinstance(e, events.PhaseStarted) and e.phase == "drain")

    @cached_property
    def body(self) -> list[AnyEvent]:
        """What is judged: what happened before drain, in the order it arrived."""
        return [event for event in self.events if event.t_s < self.drain.t_s]

    def commits(self, member: str | None = None) -> list[events.Step]:
        return [step for step in self.of(events.Step, member=member) if step.committed]

    def inner_commits(self, among: Container[str] | None = None) -> list[events.Step]:
        """Commits between two others of the same life in the same quorum: nothing befell that member around them."""
        found = []
        for member in self.replicas:
            own = self.commits(member)
            for before, commit, after in zip(own, own[1:], own[2:], strict=False):
                same = {(one.quorum_id, one.incarnation) for one in (before, commit, after)}
                in_a_row = after.step - before.step == 2 and not before.healing
                if len(same) == 1 and in_a_row and (among is None or member in among):
                    found.append(commit)
        return found

    def together(self, commit: events.Step) -> list[events.Step]:
        """All commits of the same step in the same quorum."""
        return [one for one in self.commits() if (one.step, one.quorum_id) == (commit.step, commit.quorum_id)]

    def shared_commits(self) -> list[events.Step]:
        """Inner commits of which every other commit of the step is an inner one too, at least two of them."""
        inner = {commit.seq for commit in self.inner_commits()}
        return [
            commit
            for commit in self.inner_commits()
            if len(group := self.together(commit)) > 1 and all(one.seq in inner for one in group)
        ]

    def faults(self) -> list[events.FaultStarted]:
        return self.of(events.FaultStarted)

    def proofs(self, *kinds: type[Injection]) -> list[events.InjectionInForce]:
        """Proofs in force, of injections of some kinds if any are given."""
        return [proof for proof in self.of(events.InjectionInForce) if not kinds or isinstance(proof.injection, kinds)]

    @cached_property
    def aimed(self) -> frozenset[str]:
        """The members that any fault was aimed at, those of its nodes among them."""
        targets = {target for started in self.faults() for target in started.targets}
        return frozenset(targets | {member for target in targets for member in self.plan.topology.on(target)})

    @cached_property
    def survivors(self) -> list[str]:
        return [replica for replica in self.replicas if replica not in self.aimed]

    def deaths(self) -> list[Death]:
        """Replicas that were hit once, killed by it, and came back before drain."""
        found = []
        for proof in self.proofs(*Lethal.__args__):
            started = next(one for one in self.faults() if one.fault_id == proof.fault_id)
            for member in self.plan.topology.on(proof.proof.member) or (proof.proof.member,):
                once = sum(member in self.targets(one) for one in self.faults()) == 1
                lived = [e.incarnation for e in self.body if e.member == member and e.seq < started.seq]
                newer = [commit for commit in self.commits(member) if commit.incarnation > max(lived)]
                if member in self.replicas and once and len(newer) > 2:
                    found.append(Death(member, started, proof, max(lived), newer[0].incarnation))
        return found

    def due_s(self, death: Death) -> float:
        """From when on a replica could come back: a node that is down keeps its members away."""
        if not isinstance(death.proof.injection, NodeDown):
            return death.proof.t_s
        return max(end.t_s for end in self.of(events.InjectionReverted) if end.fault_id == death.proof.fault_id)

    def targets(self, started: events.FaultStarted) -> set[str]:
        on_nodes = {member for target in started.targets for member in self.plan.topology.on(target)}
        return on_nodes | set(started.targets)

    def since(self, death: Death, *kinds: type[E]) -> list[E]:
        """What a member told after a death, before drain."""
        return [e for e in self.of(*kinds, member=death.member) if e.incarnation > death.lived]

    # Changing.

    def with_events(self, changed: Iterable[AnyEvent]) -> Run:
        """The run with other events, numbered from 0."""
        numbered = (msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(changed))
        return replace(self.run, events=tuple(numbered))

    def edited(self, edit: Callable[[AnyEvent], AnyEvent | Iterable[AnyEvent] | None]) -> Run:
        """Every event through `edit`: another one, several, or None for none."""

        def results() -> Iterable[AnyEvent]:
            for event in self.events:
                result = edit(event)
                if isinstance(result, Event):
                    yield result
                elif result is not None:
                    yield from result

        return self.with_events(results())

    def dropped(self, gone: Collection[Event]) -> Run:
        return self.changed(gone, lambda event: None)

    def changed(
        self, some: Collection[Event], how: Callable[[Any], AnyEvent | None] | None = None, /, **fields: Any
    ) -> Run:
        """Some events through `how`, or with other fields."""
        if not some:
            raise NotHere
        seqs = {event.seq for event in some}
        how = how or (lambda event: msgspec.structs.replace(event, **fields))
        return self.edited(lambda event: how(event) if event.seq in seqs else event)

    def inserted(self, place: Event, *new: Event, before: bool = False) -> Run:
        """New events right after a place in the journal, or before it."""

        def edit(event: AnyEvent) -> Sequence[Any]:
            if event.seq != place.seq:
                return [event]
            return [*new, event] if before else [event, *new]

        return self.edited(edit)

    def delayed(self, since_s: float, seconds: float) -> Run:
        """Everything after a time happens later."""
        return self.stretched(since_s, lambda late_s: late_s + seconds)

    def stretched(self, since_s: float, longer: Callable[[float], float]) -> Run:
        """Everything after a time happens at another time since then."""
        return self.edited(
            lambda event: (
                event
                if event.t_s <= since_s
                else msgspec.structs.replace(event, t_s=since_s + longer(event.t_s - since_s))
            )
        )
