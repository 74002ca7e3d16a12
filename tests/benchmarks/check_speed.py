"""What judging a long run costs: processor seconds and memory of `chaos check`, by the length of the journal.

    python -m tests.benchmarks.check_speed [--events 10000 100000 1000000] [--replicas 16]

Run by hand on a quiet machine, from the repository's root. Every journal has a fault for each 2,000 events (kills and
freezes in turn, of one replica after the other, each of which comes back) and is judged by all monitors in a process of
its own. Prints a table. The goal is less than 5 s and 500 MB for a million events, and time that grows with the length.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from chaos.api import events
from chaos.check import PLAN, check, digest
from chaos.journal import NAME
from chaos.registry import monitors
from tests.unit.monitors.journals import Story, about, jittered

EVENTS_PER_FAULT = 2_000
BYTES_PER_MB = 1_000_000


def long_run(events_min: int, replicas: int) -> Story:
    """A run of at least so many events in which all goes well."""
    story = Story(replicas, steps=events_min).deploy().train(20, _state).phase("disturb")
    number = 0
    while len(story.told) < events_min:
        before = len(story.told)
        _hit(story, story.replicas[number % replicas], kill=number % 2 == 0)
        rest = EVENTS_PER_FAULT - (len(story.told) - before)
        story.train(max(1, min(rest, events_min - len(story.told)) // replicas), _state)
        number += 1
    return story.phase("quiesce").train(10, _state).drain().end()


def _hit(story: Story, member: str, kill: bool) -> None:
    """A replica is taken out, its peers train 20 steps without it, it heals and is back."""
    (story.kill if kill else story.freeze)(member).wait(1.0).discard().regroup().train(10, _state)
    if kill:
        story.restart(member).train(10, _state).build(member)
    else:
        story.release().train(10, _state)
    story.join(member).train(1, _state)


def _state(member: str, step: int) -> str:
    return f"state {step}"


def store(story: Story, folder: Path) -> int:
    """Write the run as `chaos run` would, to be judged by every monitor; the number of its events."""
    plan = story.plan
    of_this_job = [name for name in monitors() if name != "fast_path"]  # It has no RDMA.
    experiment = msgspec.structs.replace(plan.experiment, monitors=dict.fromkeys(of_this_job))
    plan = msgspec.structs.replace(plan, experiment=experiment)
    story.alter(about(events.RunStarted), plan=digest(plan))
    story.alter(lambda event: isinstance(event, events.Step), rss_bytes=4_000_000_000)
    story.alter(about(events.MemberStarted), place={"kubernetes.io/hostname": "node-0"})
    told = jittered(story.journal(), seed=1, late_s_max=0.05)
    (folder / PLAN).write_bytes(msgspec.json.encode(plan))
    (folder / NAME).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in told))
    return len(told)


def judge(folder: Path) -> None:
    """Judge a run and print this process's seconds of processor time, its peak memory and the outcome."""
    outcome = check(folder).outcome
    seconds = time.process_time()
    peak_kib = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak_kib is not None
    peak_mb = int(peak_kib[1]) * 1024 / BYTES_PER_MB
    print(f"{seconds:9.2f} {peak_mb:9.0f} {outcome.value:>9}", end=" ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.judge:
        judge(args.judge)
        return
    print(f"{'events':>9} {'faults':>6} {'seconds':>9} {'peak MB':>9} {'outcome':>9}")
    for count in args.events:
        with tempfile.TemporaryDirectory() as folder:
            story = long_run(count, args.replicas)
            print(f"{store(story, Path(folder)):9} {len(story.faults):6}", end=" ", flush=True)
            subprocess.run([sys.executable, "-m", "tests.benchmarks.check_speed", "--judge", folder], check=True)
            print()


if __name__ == "__main__":
    main()
