"""Whole jobs on this machine: real trainers, real deaths. Slow; every wait is for an event and bounded."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from realjob import WAIT_S_MAX, Event, Run, hit, ordered, running

from training import process


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with contextlib.ExitStack() as jobs:
        yield lambda *options: jobs.enter_context(running(tmp_path, *options))


def assert_healed_like_its_donor(run: Run, member: str, since: Event) -> None:
    """What was loaded, rate, step and optimizer included, is bit by bit what the donor had after that step."""
    healed = run.until(lambda event: is_of(event, "heal_ended", member, since))
    (given,) = run.steps(member=healed["source"], step=healed["step"], committed=True)
    assert healed["digest"] == given["digest"]


def is_of(event: Event, kind: str, member: str, since: Event) -> bool:
    return (event["kind"], event["member"]) == (kind, member) and bool(event["mono_s"] > since["mono_s"])


def until_built(run: Run, member: str, since: Event) -> Event:
    """The next trainer of a member."""
    return run.until(lambda event: is_of(event, "trainer_started", member, since))


def until_back(run: Run, member: str, since: Event) -> Event:
    """Its next commit."""
    return run.until(lambda event: is_of(event, "step", member, since) and event["committed"])


def test_replicas_agree_and_a_killed_worker_host_rejoins(run: Callable[..., Run]) -> None:
    job = run("--replicas", "3", "--steps", "2000", "--set", "warmup_steps=12", "--set", "decay_ratio=1.0")
    job.until_committed("replica-0", 5)
    job.kill_host("replica-1")
    job.until_committed("replica-1", 1, incarnation=2)
    assert_healed_like_its_donor(job, "replica-1", job.until(lambda event: event["incarnation"] == 2))
    rejoined = job.until_committed("replica-1", 1, incarnation=2)["step"]
    for member, incarnation in (("replica-0", 1), ("replica-1", 2), ("replica-2", 1)):
        job.until_committed(member, rejoined + 3, incarnation)
    assert job.stop() == 0
    assert job.progress().differing_steps() == []
    assert {event["participants"] for event in job.steps(step=rejoined + 3, committed=True)} == {3}
    finished = {event["member"]: event["step"] for event in job.events if event["kind"] == "trainer_finished"}
    assert len(finished) == 3
    assert len(set(finished.values())) == 1, "a stop ends all replicas at the same step"
    by_step = {event["step"]: event["lr"] for event in job.steps(committed=True)}
    assert all(event["lr"] == by_step[event["step"]] for event in job.steps(committed=True))


@pytest.mark.parametrize("respawn", ["fork", "standby"])
def test_a_killed_trainer_is_followed_by_another_in_the_same_life(run: Callable[..., Run], respawn: str) -> None:
    """Twice in a row: the second one dies before it is of use."""
    options = ("--steps", "2000", "--set", "lighthouse=controller", "--set", f"respawn={respawn}")
    job = run("--replicas", "2", "--min-replicas", "1", *options)
    before = job.until_committed("replica-1", 6)
    for _ in range(2):
        job.kill_trainer("replica-1")
        before = until_built(job, "replica-1", before)
    until_back(job, "replica-1", before)
    assert_healed_like_its_donor(job, "replica-1", before)
    assert not any(event["kind"] == "member_lost" for event in job.events)
    assert job.stop() == 0
    assert job.progress().differing_steps() == []


def test_nobody_waits_for_a_frozen_trainer_which_goes_on_when_it_can(run: Callable[..., Run]) -> None:
    """Without an exchange timeout that could end the wait."""
    job = run("--replicas", "3", "--steps", "2000", "--set", "process_group_timeout_s=59")
    born = until_built(job, "replica-1", {"mono_s": 0.0})
    before = job.until_committed("replica-1", 5)
    os.kill(born["pid"], signal.SIGSTOP)
    alone = job.until(lambda event: is_of(event, "step", "replica-2", before) and event["participants"] == 2)
    os.kill(born["pid"], signal.SIGCONT)
    until_back(job, "replica-1", alone)
    assert not any("imeout" in (event["error"] or "") for event in job.steps(committed=False))
    assert job.stop() == 0
    assert job.progress().differing_steps() == []


def test_a_trainer_that_stands_for_a_moment_costs_no_new_quorum(run: Callable[..., Run]) -> None:
    """For longer than the lighthouse waits for heartbeats, and shorter than a silence."""
    job = run("--replicas", "3", "--steps", "2000", "--set", "heartbeat_timeout_ms=400", "--set", "silence_s=20")
    born = until_built(job, "replica-1", {"mono_s": 0.0})
    before = job.until(lambda event: is_of(event, "step", "replica-1", born) and event["participants"] == 3)
    with ordered(job, "replica-1", "after_commit", "pause", times=1) as order:  # its peers ask for a quorum meanwhile
        hit(job, order)
        os.kill(born["pid"], signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(born["pid"], signal.SIGCONT)
    resumed = {"mono_s": time.monotonic()}
    for member in ("replica-0", "replica-1", "replica-2"):
        assert until_back(job, member, resumed)["quorum_id"] == before["quorum_id"]
    assert job.stop() == 0


def test_a_job_ends_by_itself_with_one_history(run: Callable[..., Run]) -> None:
    """Even where one replica may train alone, one that starts late never makes steps that were made before."""
    job = run("--replicas", "2", "--min-replicas", "1", "--steps", "6")
    assert job.launcher.wait(timeout=WAIT_S_MAX) == 0, job.printed.read_text()
    job.until(lambda event: event["kind"] == "controller_finished" and event["reason"] == "steps_reached")
    finished = [event for event in job.events if event["kind"] == "trainer_finished"]
    whole = {event["member"] for event in finished if event["reason"] == "steps_reached"}
    assert {event["step"] for event in job.steps(committed=True)} == set(range(1, 7))
    assert {event["member"] for event in job.steps(step=6, committed=True)} == whole
    for member in whole:
        own = [event for event in job.events if event["member"] == member]
        assert [event["seq"] for event in own] == list(range(len(own)))
        assert own[-1]["kind"] == "trainer_finished"


def test_stock_healing_kills_the_healthy_or_parts_the_states(run: Callable[..., Run]) -> None:
    """One rejoin is enough as a rule; one in a discarded step gets the right rate by luck, so three are tried.

    The first sync of the job is a heal as well, so harm may come before anyone is killed.
    """
    job = run("--recipe", "cpu-debug-stock-heal", "--replicas", "3", "--steps", "2000", "--set", "warmup_steps=500")

    def wrong(event: Event) -> bool:
        return event["kind"] == "trainer_failed" or bool(job.progress().differing_steps())

    if wrong(job.until_step_after_heal("replica-0", 1, wrong)):
        return
    for incarnation in (1, 2, 3):
        job.kill_host("replica-1")
        healed = job.until_step_after_heal("replica-1", incarnation + 1, wrong)
        if wrong(healed):
            return
    pytest.fail("three rejoins without harm: is stock healing repaired?")


def test_nothing_outlives_a_killed_launcher(run: Callable[..., Run]) -> None:
    job = run("--replicas", "2", "--steps", "2000")
    for member in ("replica-0", "replica-1"):
        job.until(lambda event, name=member: event["kind"] == "trainer_spawned" and event["name"] == name)
    family = descendants(job.launcher.pid)
    assert len(family) >= 6, "lighthouse, controller, two worker hosts, two trainers"
    watched = [os.pidfd_open(pid) for pid in family]
    job.launcher.kill()
    job.launcher.wait()
    for pid, handle in zip(family, watched, strict=True):
        assert ended(handle, within_s=10.0), f"process {pid} lives on"
        os.close(handle)


def descendants(pid: int) -> list[int]:
    return [found for child in process.children(pid) for found in (child, *descendants(child))]


def ended(handle: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
