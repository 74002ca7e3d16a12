"""The monitor `fast_path` on counters of a real kernel: a story of steps, and real bytes by one path or the other."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from chaos.agent.linux.meter import Meter
from chaos.api import Finding, History, events
from chaos.monitors.fast_path import FastPath, FastPathLimits
from tests.agent.pods import Pod
from tests.agent.rails import measured, send_by_tcp
from tests.unit.monitors.journals import Story

STEPS = 4
"""Between two looks."""
_BYTES, _MESSAGE_BYTES = 4_000_000, 65536


class Path(enum.Enum):
    RDMA = "rdma"
    TCP = "tcp"

    def carry(self, rails: Pod) -> None:
        """Much more than a window needs to be judged."""
        if self is Path.TCP:
            send_by_tcp(rails, _BYTES)
        else:
            assert measured(rails, "ib_write_bw", "-s", str(_MESSAGE_BYTES), "-n", str(_BYTES // _MESSAGE_BYTES))


def judged(rails: Pod, windows: Sequence[Path]) -> tuple[Finding, list[float]]:
    """The finding, and when each window began. Both ends of the cable are counted together, as each replica's bytes."""
    story, meter = Story(replicas=2).deploy(), Meter(rails.network)
    since_s = [_look(story, meter)]
    for path in windows:
        path.carry(rails)
        story.train(STEPS)
        since_s.append(_look(story, meter))
    plan = msgspec.structs.replace(story.plan, workload=msgspec.structs.replace(story.workload, gradients_over="rdma"))
    monitor, history = FastPath(plan, FastPathLimits()), History(plan.topology)
    for event in story.drain().end().journal():
        history.apply(event)
        if isinstance(event, monitor.watches):
            monitor.observe(event, history)
    return monitor.conclude(history), since_s[:-1]


def _look(story: Story, meter: Meter) -> float:
    """When it was."""
    over_rdma, over_ethernet = meter.look()
    for name in story.replicas:
        about = {"name": name, "member_incarnation": story.incarnation[name]}
        story.say(events.BytesCarried, "runner", **about, rdma_bytes=over_rdma, ethernet_bytes=over_ethernet)
    return story.now_s
