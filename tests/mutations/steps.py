"""Mutations of what was committed: steps lost, repeated, split between groups, or miscounted."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.api import events
from tests.mutations.mutation import NOT_PASS, NotHere, Run, Scene, violates

ELSEWHERE = 9000
"""What is added to a quorum's id to make it another one."""


@violates("history_kept", outcomes=NOT_PASS)
def commit_of_one_member_lost(scene: Scene) -> Run:
    """A member goes on two steps further, in one quorum and without a heal."""
    return scene.dropped([scene.any_of(scene.inner_commits())])


@violates("history_kept", outcomes=NOT_PASS)
def commits_of_a_step_lost(scene: Scene) -> Run:
    """Nobody committed a step, and all went on with the one after it."""
    return scene.dropped(scene.together(scene.any_of(scene.shared_commits())))


@violates("history_kept")
def commit_told_twice(scene: Scene) -> Run:
    """The same commit stands in the journal again a moment later."""
    commit = scene.any_of(scene.inner_commits())
    return scene.inserted(commit, replace(commit, t_s=commit.t_s + 0.001))


@violates("history_kept")
def step_committed_again(scene: Scene) -> Run:
    """After its next step a member commits the one before again, with another content."""
    commit = scene.any_of(scene.inner_commits())
    following = next(one for one in scene.commits(commit.member) if one.t_s > commit.t_s)
    again = replace(commit, t_s=following.t_s + 0.001, loss=(commit.loss or 1.0) / 2, digest="f" * 32)
    return scene.inserted(following, again)


@violates("one_quorum")
def commit_in_another_quorum(scene: Scene) -> Run:
    """One member commits a step in a quorum that the others are not in."""
    commit = scene.any_of(scene.shared_commits())
    return scene.changed([commit], quorum_id=commit.quorum_id + ELSEWHERE)


@violates("one_quorum")
def job_splits_in_two(scene: Scene) -> Run:
    """For some steps two groups commit apart, each in its own quorum and with its own number of participants."""
    commit = scene.any_of(scene.shared_commits())
    group = sorted({one.member for one in scene.together(commit)})
    part = set(scene.chance.sample(group, scene.chance.randint(1, len(group) - 1)))
    steps = range(commit.step, commit.step + scene.chance.randint(1, 4))
    split = [one for one in scene.inner_commits(group) if one.step in steps and one.quorum_id == commit.quorum_id]

    def apart(one: events.Step) -> events.Step:
        away = one.member in part
        count = len(part) if away else len(group) - len(part)
        return replace(one, quorum_id=one.quorum_id + ELSEWHERE * away, participants=count)

    return scene.changed(split, apart)


@violates("history_kept")
def replica_falls_back_after_its_return(scene: Scene) -> Run:
    """A replica that came back trains steps again that the job had trained before."""
    death = scene.any_of(scene.deaths())
    back = scene.chance.randint(1, 5)
    return scene.changed(scene.since(death, events.Step), lambda step: replace(step, step=max(1, step.step - back)))


@violates("history_kept")
def job_falls_back(scene: Scene) -> Run:
    """From some step on all train again what they had trained."""
    commit = scene.any_of(scene.shared_commits())
    back = scene.chance.randint(1, min(5, commit.step - 1) or 1)
    later = [one for one in scene.of(events.Step) if one.step >= commit.step]
    return scene.changed(later, lambda step: replace(step, step=step.step - back))


@violates("one_quorum")
def more_commit_than_take_part(scene: Scene) -> Run:
    """A step is committed by more replicas than its quorum had."""
    group = scene.together(scene.any_of(scene.shared_commits()))
    return scene.changed(group, participants=len(group) - 1)


@violates("one_quorum")
def one_member_counts_fewer(scene: Scene) -> Run:
    """One member committed a step as if the others had not been there."""
    commit = scene.any_of(scene.shared_commits())
    return scene.changed([commit], participants=scene.chance.randint(1, commit.participants - 1))


@violates("one_quorum", "gradients_scaled")
def fewer_commit_than_take_part(scene: Scene) -> Run:
    """All who committed a step divided by one participant more than there were."""
    group = scene.together(scene.any_of(scene.shared_commits()))
    return scene.changed(group, participants=len(group) + 1)


@violates("one_quorum")
def healing_replica_counts(scene: Scene) -> Run:
    """A replica that healed in a step contributed to it, though it was not counted."""
    healing = [
        commit for commit in scene.commits() if commit.healing and len(scene.together(commit)) > commit.participants
    ]
    return scene.changed([scene.any_of(healing)], healing=False)


@violates("one_quorum")
def stranger_commits(scene: Scene) -> Run:
    """A replica that the job does not have commits with the others."""
    commit = scene.any_of(scene.shared_commits())
    return scene.inserted(commit, replace(commit, member="replica-99"))


@violates("history_kept", "one_quorum", outcomes=NOT_PASS)
def commit_in_anothers_name(scene: Scene) -> Run:
    """A commit of one member stands under the name of another that committed the step too."""
    commit = scene.any_of(scene.shared_commits())
    other = scene.any_of(one for one in scene.together(commit) if one.member != commit.member)
    return scene.changed([commit], member=other.member, incarnation=other.incarnation)


@violates("one_quorum")
def outsider_commits(scene: Scene) -> Run:
    """A member commits in a quorum that does not name it."""
    commit = scene.any_of(scene.shared_commits())
    told = [one for one in scene.of(events.Quorum) if one.quorum_id == commit.quorum_id and one.members]
    return scene.changed(
        told, lambda quorum: replace(quorum, members=tuple(m for m in quorum.members or () if m != commit.member))
    )


@violates("one_quorum")
def quorum_id_used_again(scene: Scene) -> Run:
    """A lighthouse gives the id of an earlier quorum to another group."""
    quorums = scene.of(events.Quorum)
    pairs = [
        (before, after)
        for before in quorums
        for after in quorums
        if before.seq < after.seq and before.members and after.members and set(before.members) != set(after.members)
        if not _lighthouse_restarted(scene, before.t_s, after.t_s)
    ]
    before, after = scene.any_of(pairs)

    def renamed(one: events.Step | events.Quorum) -> events.Step | events.Quorum:
        return replace(one, quorum_id=before.quorum_id) if one.quorum_id == after.quorum_id else one

    return scene.changed(scene.of(events.Step, events.Quorum), renamed)


def _lighthouse_restarted(scene: Scene, since_s: float, until_s: float) -> bool:
    starts = [one.t_s for one in scene.of(events.LighthouseStarted)]
    if not starts:
        raise NotHere
    return any(since_s < start_s <= until_s for start_s in starts)
