"""``python -m training run``: a whole job on this machine, as plain processes on loopback.

Every run has a block of 127.0.0.0/8 to itself. Dead members are started again, like the pods of a StatefulSet. However
this process ends, nothing of the job stays: it is the reaper of all descendants and ends them on its way out; killed
outright, the kernel ends the members and each trainer ends with its worker host.
Not here: pods, networks, faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

from training import process, recipes, workload
from training.progress import EventFiles, Progress
from training.settings import Job, UserError

CLAIM_PORT = 29399
CLAIM_ATTEMPTS = 50
RESTART_S_MIN, RESTART_S_MAX = 0.1, 5.0
SHORT_LIFE_S = 10.0
TERMINATE_S_MAX = 3.0
LOOK_EVERY_S = 0.25
LINE_EVERY_S = 1.0


class Block:
    """A block 127.a.b.0/24, claimed by holding a port on its first address until ``close``."""

    def __init__(self) -> None:
        for _ in range(CLAIM_ATTEMPTS):
            self.prefix = f"127.{random.randint(16, 250)}.{random.randint(0, 255)}"
            self._claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self._claim.bind((f"{self.prefix}.1", CLAIM_PORT))
                return
            except OSError:
                self._claim.close()
        raise UserError(f"no free block of 127.0.0.0/8 after {CLAIM_ATTEMPTS} attempts; end other runs on this machine")

    def address(self, index: int) -> str:
        """The address of the ``index``-th member."""
        return f"{self.prefix}.{10 + index}"

    def close(self) -> None:
        """Leave the block to others."""
        self._claim.close()


class Launcher:
    """Starts, restarts and ends the members of one job."""

    def __init__(self, job: Job, out: Path) -> None:
        self._work = workload.describe(job)
        self._roles = {name: role for name, role in self._work.roles.items() if not role.on_demand}
        self._grace_s = job.settings.stop_grace_s + 5.0
        self._out = out
        self._block = Block()
        members = [member for role in self._roles.values() for member in role.members]
        self._addresses = {member: self._block.address(index) for index, member in enumerate(members)}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._files = EventFiles(out / "events")
        self._progress = Progress(job.steps)
        self._began = time.monotonic()

    async def run(self) -> int:
        """Run the job to its end; 0 when the controller ended in order and the replicas agree, else 1."""
        for folder in ("events", "logs", *(f"scratch/{member}" for member in self._addresses)):
            (self._out / folder).mkdir(parents=True, exist_ok=True)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)
        work = self._work
        self._say(f"{work.recipe}, {work.replicas} replicas, {work.steps} steps; files in {self._out}")
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch())
                keepers = [
                    tasks.create_task(self._keep(role.command, member))
                    for name, role in self._roles.items()
                    for member in role.members
                    if name != "controller"
                ]
                status = await self._controller()
                for task in (watch, *keepers):
                    task.cancel()
        finally:
            await asyncio.shield(self._end_all())
            self._block.close()
        self._look()
        for line in self._progress.summary():
            self._say(line)
        return 1 if status or self._progress.differing_steps() else 0

    def _interrupted(self) -> None:
        """First time: end the job in order. Second time: at once."""
        controller = self._processes.get("controller")
        if self._stopping.is_set() or controller is None:
            raise KeyboardInterrupt
        self._say("stopping after the present step; once more to end at once")
        self._stopping.set()
        with contextlib.suppress(ProcessLookupError):
            controller.terminate()

    async def _controller(self) -> int:
        """Keep the controller alive until it ends in order; its status 0 ends the job."""
        role = self._roles["controller"]
        keeper = asyncio.create_task(self._keep(role.command, "controller"))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({keeper, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not keeper.done():
                await asyncio.wait({keeper}, timeout=self._grace_s)
            return keeper.result() if keeper.done() else 1
        finally:
            keeper.cancel()
            stopping.cancel()

    async def _keep(self, command: list[str], member: str) -> int:
        """Start a member again and again; ends only for the controller, with its status 0."""
        incarnation, pause_s = 0, RESTART_S_MIN
        while True:
            incarnation += 1
            born = time.monotonic()
            status = await self._live(command, member, incarnation)
            if member == "controller" and (status == 0 or self._stopping.is_set()):
                return status
            lived_s = time.monotonic() - born
            pause_s = RESTART_S_MIN if lived_s > SHORT_LIFE_S else min(pause_s * 2, RESTART_S_MAX)
            life = f"{member}#{incarnation} ended after {lived_s:.1f} s with status {status}"
            self._say(f"{life}; again in {pause_s:.1f} s")
            await asyncio.sleep(pause_s)

    async def _live(self, command: list[str], member: str, incarnation: int) -> int:
        """One life of a member, to its exit status."""
        filled = [self._fill(word, member, incarnation) for word in command]
        package_root = str(Path(__file__).resolve().parent.parent)
        env = os.environ | self._work.env
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, env.get("PYTHONPATH", "")]))
        with (self._out / "logs" / f"{member}.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *filled,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=self._out / "scratch" / member,
                start_new_session=True,
                preexec_fn=process.die_with_parent,
            )
        self._processes[member] = child
        return await child.wait()

    def _fill(self, word: str, member: str, incarnation: int) -> str:
        address = self._addresses[member]
        values = {
            "python": sys.executable,
            "member": member,
            "incarnation": str(incarnation),
            "address": address,
            "host": address,
            "data_interface": "lo",
            "events": str(self._out / "events" / f"{member}-{incarnation}.jsonl"),
            "scratch": str(self._out / "scratch" / member),
            **{f"host:{name}": other for name, other in self._addresses.items()},
        }
        for name, value in values.items():
            word = word.replace("{" + name + "}", value)
        return word

    async def _watch(self) -> None:
        """Tell what happens, and the state of the job once a second."""
        next_line = time.monotonic() + LINE_EVERY_S
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._look()
            self._reap()
            if time.monotonic() >= next_line:
                next_line += LINE_EVERY_S
                self._say(self._progress.line())

    def _look(self) -> None:
        for event in self._files.new():
            if (said := self._progress.take(event)) is not None:
                self._say(said)

    def _say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {line}", flush=True)

    def _reap(self) -> None:
        """Collect descendants whose parents ended; members are collected by asyncio."""
        ours = {child.pid for child in self._processes.values()}
        for pid in process.children(os.getpid()):
            if pid not in ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    async def _end_all(self) -> None:
        """End every descendant: politely first, outright after ``TERMINATE_S_MAX``. Orphans become our children."""
        polite_until = time.monotonic() + TERMINATE_S_MAX
        number = signal.SIGTERM
        while left := process.children(os.getpid()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            self._reap()
            await asyncio.sleep(0.05)
            if time.monotonic() > polite_until:
                number = signal.SIGKILL


def main(job: Job, out: str | None) -> int:
    """Run the job; gives the exit status."""
    recipes.require_device(job.recipe)
    folder = Path(out or f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{job.recipe}").resolve()
    if (folder / "events").exists():
        raise UserError(f"--out {folder}: holds a run already; choose another folder")
    process.adopt_orphans()

    async def whole() -> int:
        return await Launcher(job, folder).run()

    try:
        return asyncio.run(whole())
    except KeyboardInterrupt:
        return 130
