"""Ends, signals and watches the processes of a pod, with the proof that it came so. Processes are held by pidfds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from chaos.agent.linux.resource import NotInForce
from chaos.platforms.kubernetes.agent.pods import NodePods
from chaos.platforms.kubernetes.order import Target

GONE_S = 5.0
POLL_S = 0.001
KEEP_S = 15.0
KEEP_POLL_S = 0.02


async def end(pods: NodePods, target: Target) -> str:
    """SIGKILL to every process of the container, until none is left. The evidence."""
    main = pods.find(target, target.pid)
    with _held(main) as pidfd:
        pids = pods.container(main)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await _gone(pidfd, GONE_S, f"main process {main} of {target.pod}")
        await _all_gone(pids)
    return f"main process {main} of pod {target.uid} is gone from its node, with {len(pids) - 1} others"


async def keep_dead(pods: NodePods, target: Target) -> None:
    """Kill what comes to life in the pod until the pod is gone, for KEEP_S at most.

    The kubelet may start the container once more before it has heard that the pod is no more.
    """
    with anyio.move_on_after(KEEP_S):
        while (pids := pods.revived(target)) is not None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await anyio.sleep(KEEP_POLL_S)


async def see_end(pods: NodePods, target: Target, ready: anyio.Event, within_s: float) -> str:
    """Wait until someone else has ended the container; `ready` is set once it is watched. The evidence."""
    main = pods.find(target, target.pid)
    with _held(main) as pidfd:
        pids = pods.container(main)
        ready.set()
        await _gone(pidfd, within_s, f"main process {main} of {target.pod}")
        await _all_gone(pids)
    return f"main process {main} of pod {target.uid} is gone from its node, with {len(pids) - 1} others"


async def send(pods: NodePods, target: Target, pid: int, number: int) -> str:
    """A signal to the process that has `pid` in the pod, and what came of it. The evidence."""
    found = pods.find(target, pid)
    what = f"process {found} of {target.pod}"
    with _held(found) as pidfd:
        signal.pidfd_send_signal(pidfd, number)
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            await _gone(pidfd, GONE_S, what)
            return f"{what} is gone"
        stopped = number == signal.SIGSTOP
        with anyio.move_on_after(GONE_S):
            while (_state(found) in "Tt") is not stopped:
                await anyio.sleep(POLL_S)
            return f"{what} is {'stopped' if stopped else 'running again'}"
    raise NotInForce(f"{signal.Signals(number).name} was sent but not seen in force within {GONE_S:g} s on {what}")


@contextmanager
def _held(pid: int) -> Iterator[int]:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise NotInForce(f"process {pid} ended before it could be hit") from error
    try:
        yield pidfd
    finally:
        os.close(pidfd)


async def _gone(pidfd: int, within_s: float, what: str) -> None:
    with anyio.move_on_after(within_s) as waited:
        await anyio.wait_readable(pidfd)
    if waited.cancelled_caught:
        raise NotInForce(f"{what} was not gone within {within_s:g} s")


async def _all_gone(pids: list[int]) -> None:
    """A process that ended counts as gone although nobody has collected it yet."""
    with anyio.move_on_after(GONE_S) as waited:
        while any(_state(pid) not in "ZX" for pid in pids):
            await anyio.sleep(POLL_S)
    if waited.cancelled_caught:
        raise NotInForce(f"some of {len(pids)} processes were not gone within {GONE_S:g} s")


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"
