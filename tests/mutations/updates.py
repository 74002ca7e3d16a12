"""Mutations of what updates are made of: the data, the divisor, and how much of the work was kept."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import NOT_PASS, UNKNOWN, NotHere, Run, Scene, violates


def _told(scene: Scene, field: str) -> list[events.Step]:
    """Inner commits that tell a field which older recordings do not have."""
    return [commit for commit in scene.inner_commits() if getattr(commit, field) is not None]


@violates("data_once")
def batch_counted_twice(scene: Scene) -> Run:
    """A member trained a step on the batch of the step before."""
    commit = scene.any_of(_told(scene, "batch"))
    return scene.changed([commit], batch=(commit.batch or 0) - 1)


@violates("data_once")
def returned_replica_reads_from_the_beginning(scene: Scene) -> Run:
    """A replica that came back trains on what it had trained on in its first life."""
    death = scene.any_of(scene.deaths())
    commits = [one for one in scene.since(death, events.Step) if one.committed and not one.healing]
    if any(one.batch is None for one in commits):
        raise NotHere
    again = {one.seq: number for number, one in enumerate(commits, start=1)}
    return scene.changed(commits, lambda one: replace(one, batch=again[one.seq]))


@violates("data_once", outcomes=UNKNOWN)
def batches_untold(scene: Scene) -> Run:
    """A member never told which batches it trained on."""
    member = scene.any_of(_told(scene, "batch")).member
    return scene.changed(scene.of(events.Step, member=member), batch=None)


@violates("gradients_scaled")
def divided_by_one_too_many(scene: Scene) -> Run:
    """The gradients of a step were divided by one replica more than contributed, for all alike."""
    group = scene.together(scene.any_of(_told(scene, "gradient_scale")))
    return scene.changed(group, gradient_scale=len(group) / (len(group) + 1))


@violates("gradients_scaled")
def divided_by_one_for_ever(scene: Scene) -> Run:
    """From some step on nobody divides the sum of the gradients."""
    commit = scene.any_of(one for one in _told(scene, "gradient_scale") if one.participants > 1)
    later = [one for one in scene.commits() if one.t_s >= commit.t_s and one.gradient_scale is not None]
    return scene.changed(later, lambda one: replace(one, gradient_scale=float(one.participants)))


@violates("gradients_scaled", "one_quorum")
def one_member_divides_by_more(scene: Scene) -> Run:
    """One member divided the sum by another number than its peers."""
    commit = scene.any_of(scene.shared_commits())
    return scene.changed([commit], participants=commit.participants + 1)


@violates("gradients_scaled", outcomes=UNKNOWN)
def scales_untold(scene: Scene) -> Run:
    """A member never told what its gradients were scaled by."""
    member = scene.any_of(_told(scene, "gradient_scale")).member
    return scene.changed(scene.of(events.Step, member=member), gradient_scale=None)


@violates("goodput")
def most_work_is_in_vain(scene: Scene) -> Run:
    """Each step is tried twice in vain before it is committed, in a job that must keep more than half of its work."""
    seqs = {commit.seq for commit in scene.commits()}

    def edit(event: Any) -> Any:
        if event.seq not in seqs:
            return event
        vain = replace(event, committed=False, tokens=0, digest=None, error="timed out", gradient_scale=None)
        return [replace(vain, t_s=event.t_s - 0.02), replace(vain, t_s=event.t_s - 0.01), event]

    return _limited(scene.edited(edit), "goodput", step_efficiency_min=0.5)


@violates("participation", outcomes=NOT_PASS)
def replica_is_up_and_takes_no_part(scene: Scene) -> Run:
    """A replica lives, and from some step on the others train without it."""
    commit = scene.any_of(scene.inner_commits(scene.survivors))
    gone = [one for one in scene.commits(commit.member) if one.step > commit.step]
    others = {one.step for one in scene.commits() if one.member != commit.member and one.step > commit.step}
    if len(others) < 10:
        raise NotHere
    return _limited(scene.dropped(gone), "participation", idle_steps_max=5)


def _limited(run: Run, monitor: str, **limits: float) -> Run:
    """The run of an experiment that asks for more."""
    experiment = replace(run.plan.experiment, monitors=run.plan.experiment.monitors | {monitor: limits})
    return Run(run.name, replace(run.plan, experiment=experiment), run.events, run.flaws).of_today()
