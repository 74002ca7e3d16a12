"""Mutations of what was learned: states that differ, losses that are no numbers, evidence that is missing."""

from __future__ import annotations

from math import inf, nan

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import UNKNOWN, Run, Scene, violates

OTHER = "0123456789abcdef" * 2


@violates("same_state")
def state_differs_once(scene: Scene) -> Run:
    """After one step one member holds another state than its peers."""
    return scene.changed([scene.any_of(scene.shared_commits())], digest=OTHER)


@violates("same_state")
def state_differs_for_ever(scene: Scene) -> Run:
    """From one step on one member holds another state than its peers."""
    commit = scene.any_of(scene.shared_commits())
    later = [one for one in scene.commits(commit.member) if one.step >= commit.step]
    return scene.changed(later, lambda one: replace(one, digest=f"{one.step:032x}"))


@violates("same_state")
def replica_comes_back_with_another_state(scene: Scene) -> Run:
    """A replica loads the right state, and its first step makes another one of it, as a stale learning rate does."""
    death = scene.any_of(scene.deaths())
    commits = [step for step in scene.since(death, events.Step) if step.committed]
    return scene.changed(commits, lambda one: replace(one, digest=f"{one.step:032x}"))


@violates("same_state")
def replica_comes_back_without_a_heal(scene: Scene) -> Run:
    """A replica trains on from what it had when it was killed: no heal, the right steps, an old state."""
    death = scene.any_of(scene.deaths())
    heals = scene.since(death, events.HealStarted, events.HealEnded)
    stale = {one.seq for one in scene.since(death, events.Step)}
    gone = {heal.seq for heal in heals}

    def edit(event: events.Event) -> events.Event | None:
        if event.seq in gone:
            return None
        return replace(event, healing=False, digest=f"{event.seq:032x}") if event.seq in stale else event

    return scene.edited(edit)


@violates("same_state")
def heal_loads_another_state(scene: Scene) -> Run:
    """What a replica loaded is not what its donor holds."""
    known = {(one.step, one.member) for one in scene.commits() if one.digest}
    heals = [heal for heal in scene.of(events.HealEnded) if (heal.step, heal.source) in known]
    return scene.changed([scene.any_of(heals)], digest=OTHER)


@violates("same_state", outcomes=UNKNOWN)
def no_digests(scene: Scene) -> Run:
    """No member ever told of its state."""
    return scene.changed(scene.of(events.Step, events.HealEnded), digest=None)


@violates("same_state", "replicas_rejoin", outcomes=UNKNOWN)
def no_digests_after_the_return(scene: Scene) -> Run:
    """A replica came back and never told of its state again."""
    death = scene.any_of(scene.deaths())
    return scene.changed(scene.since(death, events.Step), digest=None)


@violates("same_state", outcomes=UNKNOWN)
def digests_of_one_member_only(scene: Scene) -> Run:
    """Nobody's state can be compared with anybody's."""
    member = scene.any_of(scene.survivors or scene.replicas)
    return scene.changed([one for one in scene.of(events.Step) if one.member != member], digest=None)


@violates("finite_loss")
def loss_is_nan(scene: Scene) -> Run:
    """A committed step had a loss that is not a number."""
    return scene.changed([scene.any_of(scene.inner_commits())], loss=nan)


@violates("finite_loss")
def loss_is_infinite(scene: Scene) -> Run:
    """The loss ran away, for all and for good."""
    commit = scene.any_of(scene.inner_commits())
    later = [one for one in scene.commits() if one.t_s >= commit.t_s]
    return scene.changed(later, loss=scene.chance.choice([inf, -inf]))


@violates("finite_loss")
def loss_is_missing(scene: Scene) -> Run:
    """A member that told its loss before told none for a step: JSON has no NaN."""
    return scene.changed([scene.any_of(scene.inner_commits())], loss=None)


@violates("finite_loss")
def gradient_is_nan(scene: Scene) -> Run:
    """A committed update was made of what is not a number, for all members at once."""
    return scene.changed(scene.together(scene.any_of(scene.shared_commits())), grad_norm=nan)


@violates("finite_loss", outcomes=UNKNOWN)
def no_losses(scene: Scene) -> Run:
    """No member ever told a loss."""
    return scene.changed(scene.of(events.Step), loss=None, grad_norm=None)
