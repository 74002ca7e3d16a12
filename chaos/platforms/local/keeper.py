"""The keeper: starts the host and, whatever happens, leaves nothing of the cluster behind.

    python -I -S keeper.py LIFE_FD CONTROL_FD SPEC

It stands between runner and host in a session of its own, so that Ctrl-C at a terminal does not reach it. LIFE_FD reads
end-of-file when the runner is gone, by whatever signal; CONTROL_FD is for the host; SPEC is the cluster's JSON file.
When runner or host is gone it ends all processes, removes the cgroups and private folders, and exits: 0 when nothing
is left. Killed itself, it takes the host along; `sweep` removes the empty cgroups that may then stay.
It starts no pod and reads no message. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from chaos.platforms.local import cgroups, kernel, owner, processes

HOST_END_S = 10.0
_RETRY_S = 0.002


class Keeper:
    """What it owns, in the order it came to be."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.isolation: str = spec["isolation"]
        self.python: str = spec["python"]
        self.owner = owner.new_owner()
        self.groups: list[str] = []
        self.folder: str | None = None
        self.block: socket.socket | None = None
        self.host: subprocess.Popen[bytes] | None = None

    def start(self, control: int, spec_path: str, alive: int) -> None:
        """Make what is owned, then the host. `alive` reads end-of-file in the host when this process is gone."""
        grant: dict[str, Any] = {"owner": self.owner, "groups": [], "folder": None, "block": None}
        if self.isolation == "namespaces":
            self.groups = grant["groups"] = cgroups.create(self.owner)
        if self.isolation == "processes":
            self.folder = grant["folder"] = tempfile.mkdtemp(prefix=f"{owner.PREFIX}{self.owner}.")
            self.block, grant["block"] = reserve_block(self.owner)
        if self.isolation == "user-namespaces":
            kernel.become_root_in_user_namespace()
        if self.isolation != "processes":
            kernel.unshare(kernel.CLONE_NEWPID)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "host.py")
        command = [self.python, "-I", "-S", program, str(alive), str(control), spec_path, json.dumps(grant)]
        self.host = subprocess.Popen(command, pass_fds=(alive, control), start_new_session=True)

    def end(self) -> bool:
        """End and remove everything; one failure does not stop the next step. True when all went well."""
        steps: list[Callable[[], None]] = [self._end_processes]
        steps += [lambda top=top: cgroups.remove(top) for top in self.groups]  # type: ignore[misc]
        if self.folder is not None:
            steps.append(lambda folder=self.folder: shutil.rmtree(folder))  # type: ignore[misc]
        well = True
        for step in steps:
            try:
                step()
            except Exception:
                traceback.print_exc()
                well = False
        return well

    def _end_processes(self) -> None:
        if self.host is None:
            return
        self.host.kill()
        self.host.wait(HOST_END_S)
        if self.isolation != "processes":
            return  # The kernel ended everything in the host's pid namespace before the wait returned.
        deadline = time.monotonic() + processes.KILL_S
        while processes.kill_all(processes.below(os.getpid(), self.owner), within_s=0) or not processes.reap():
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of {self.owner} outlived SIGKILL by {processes.KILL_S} s")
            time.sleep(_RETRY_S)


def reserve_block(name: str) -> tuple[socket.socket, str]:
    """A block 127.X.Y of addresses that no other cluster in this network namespace holds.

    The reservation is an abstract socket name, which the kernel frees when the keeper ends.
    """
    first = zlib.crc32(name.encode()) % (250 * 250)  # Spread, so that a block is not taken again soon.
    for number in range(first, first + 250 * 250):
        block = f"127.{2 + number // 250 % 250}.{1 + number % 250}"
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0{owner.PREFIX}{block}")
            return reservation, block
        except OSError:
            reservation.close()
    raise OSError("every block of 127.0.0.0/8 is taken by another cluster")


def wait(life: int, runner: int, host: int, signals: int) -> None:
    """Until the runner is gone, the host is gone, or a signal asks for the end.

    The runner's pidfd is watched as well as `life`: a child forked from the runner may hold the other end of that open.
    """
    poll = select.poll()
    for fd in (life, runner, host, signals):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    poll.poll()


def main() -> int:
    life, control, spec_path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    runner = os.pidfd_open(os.getppid())
    signals, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    kernel.adopt_orphans()
    with open(spec_path) as file:
        keeper = Keeper(json.load(file))
    alive, mine = os.pipe()
    well = True
    try:
        keeper.start(control, spec_path, alive)
        assert keeper.host is not None
        os.close(control)
        os.close(alive)
        wait(life, runner, os.pidfd_open(keeper.host.pid), signals)
    except Exception:
        traceback.print_exc()
        well = False
    well = keeper.end() and well
    os.close(mine)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
