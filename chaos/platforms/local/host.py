"""The host: pid 1 of a cluster. Starts pods, restarts them, tells the runner.

    python -I -S host.py ALIVE_FD CONTROL_FD SPEC GRANT      (started by the keeper)

ALIVE_FD reads end-of-file when the keeper is gone; the kernel kills the host then as well. In namespaces every pod ends
with the host, whatever ends it. Messages on CONTROL_FD are in `channel`:

    to the runner     {"event": "started" (with the pod's pidfd) | "exited" | "up" (with the host's) | "broken", ...}
                      {"reply": id, "error": null | text}
    from the runner   {"id": 1, "do": "retire"}                                   no restarts from now on
                      {"id": 2, "do": "delete", "member": ..., "incarnation": ..}  kill; the next life starts at once
                      {"id": 3, "do": "close", "node": ..., "move": ...}           nothing starts there; move: elsewhere
                      {"id": 4, "do": "open", "node": ...}                         what waited for it starts
                      {"id": 5, "do": "launch", "member": ...}                     a member on demand, for one life
                      {"id": 6, "do": "names", "member": ..., "wanted": "lost" | "back"}   of the others, in its pod

It also keeps the injector running (`chaos.agent`), which holds faults on pods under leases.

One loop, no threads: `pods` switches this process between namespaces. It tails no files and judges nothing.
"""

from __future__ import annotations

import heapq
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any

if __name__ == "__main__":
    with open(sys.argv[3]) as _file:
        sys.path[:] = [os.path.abspath(f"{__file__}/../../../.."), *json.load(_file)["sys_path"]]

import msgspec

from chaos.platforms.local import channel, kernel
from chaos.platforms.local.injector import Injector
from chaos.platforms.local.pods import Ground, Life, Plain, Separate
from chaos.platforms.local.restarts import Restarts
from chaos.platforms.local.spec import Grant, Member, Spec

CONTROLLER = "controller"
STATUS_BYTES_MAX = 4096
NAMES_S = 3.0

_NAMES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.py")


class Broken(Exception):
    """The cluster cannot be trusted any more."""


class Host:
    """Who is alive, and who is due."""

    def __init__(self, spec: Spec, ground: Ground, control: socket.socket, injector: Injector | None) -> None:
        self._members = spec.members
        self._ground = ground
        self._injector = injector
        self._control = control
        self._lives: dict[int, Life] = {}
        self._incarnations = dict.fromkeys((member.name for member in spec.members), 0)
        self._restarts = {member.name: Restarts(spec.restart) for member in spec.members}
        at_once = [member for member in spec.members if not member.on_demand]
        self._due: list[tuple[float, int, Member]] = [(0.0, n, member) for n, member in enumerate(at_once)]
        self._count = len(spec.members)
        self._setting_up: dict[int, Life] = {}
        self._up = False
        self._retired = False
        self._closed: dict[str, bool] = {}
        self._waiting: list[Member] = []
        self._own = os.pidfd_open(os.getpid())
        self._poll = selectors.DefaultSelector()

    def run(self, alive: int) -> None:
        """Until the keeper or the runner is gone, or the cluster breaks."""
        wake, wake_in = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_in, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        for file in (alive, self._control, wake):
            self._poll.register(file, selectors.EVENT_READ)
        while True:
            self._start_due()
            ready = {key.fd for key, _events in self._poll.select(self._next_due_s())}
            if alive in ready or not self._take_commands():
                return
            if wake in ready:
                os.read(wake, 4096)
            for status in ready & self._setting_up.keys():
                self._set_up(self._setting_up[status])
            self._reap()
            if not self._up and not self._setting_up:
                self._up = True
                sites = msgspec.to_builtins(self._ground.node_sites())
                channel.send(self._control, {"event": "up", "nodes": self._ground.nodes(), "sites": sites}, self._own)
            if self._up and self._injector:
                self._injector.start_if_due()

    def _next_due_s(self) -> float | None:
        pod_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        waits_s = [
            wait_s for wait_s in (pod_s, self._injector.wait_s() if self._injector else None) if wait_s is not None
        ]
        return min(waits_s, default=None)

    def _node_for(self, member: Member) -> str | None:
        """Where the member's next life starts; None while it has to wait for its node."""
        if member.node not in self._closed:
            return member.node
        if not self._closed[member.node]:
            return None
        others = [other.node for other in self._members if other.role == member.role and other.node not in self._closed]
        return others[0] if others else None

    def _start_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic() and not self._retired:
            member = heapq.heappop(self._due)[2]
            node = self._node_for(member)
            if node is None:
                self._waiting.append(member)
                continue
            self._start(member, node)

    def _start(self, member: Member, node: str) -> None:
        self._incarnations[member.name] += 1
        life = self._ground.start(member, self._incarnations[member.name], node)
        self._lives[life.pid] = life
        self._setting_up[life.status] = life
        self._poll.register(life.status, selectors.EVENT_READ)
        started = {"node": node, "address": life.address, "mono_s": life.started_mono_s, "mark": life.mark}
        started["site"] = msgspec.to_builtins(life.site)
        channel.send(self._control, {"event": "started", **self._names(life), **started}, life.pidfd)

    def _set_up(self, life: Life) -> None:
        """The pod runs its command, or says why not, or was killed before."""
        words = os.read(life.status, STATUS_BYTES_MAX).decode()
        self._poll.unregister(life.status)
        del self._setting_up[life.status]
        os.close(life.status)
        if words:
            raise Broken(f"the pod of {life.member.name} could not be set up: {words}")

    def _reap(self) -> None:
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            life = self._lives.pop(pid, None)
            if self._injector and self._injector.ended(pid):
                continue
            if life is not None:  # Else an orphan that a pod of plain processes left.
                self._ended(life, os.waitstatus_to_exitcode(wait_status))

    def _ended(self, life: Life, status: int) -> None:
        ended = time.monotonic()
        if self._setting_up.get(life.status) is life:
            self._set_up(life)
        os.close(life.pidfd)
        self._ground.clear(life)
        over = life.member.role == CONTROLLER and status == 0
        wait_s = self._restarts[life.member.name].after(ended - life.started_mono_s, life.deleted)
        if self._retired or over or life.member.on_demand:
            wait_s = None
        if wait_s is not None:
            self._count += 1
            heapq.heappush(self._due, (ended + wait_s, self._count, life.member))
        exited = {"status": status, "mono_s": ended, "again_in_s": wait_s}
        channel.send(self._control, {"event": "exited", **self._names(life), **exited})

    def _names(self, life: Life) -> dict[str, Any]:
        return {"member": life.member.name, "incarnation": life.incarnation}

    def _take_commands(self) -> bool:
        """Do what the runner wants; False when the runner is gone."""
        while True:
            try:
                received = channel.receive(self._control)
            except BlockingIOError:
                return True
            if received is None:
                return False
            message = received[0]
            channel.send(self._control, {"reply": message["id"], "error": self._do(message)})

    def _do(self, message: channel.Message) -> str | None:
        """Carry one command out; what is wrong with it, or None."""
        match message:
            case {"do": "retire"}:
                self._retired = True
                self._due.clear()
            case {"do": "delete", "member": str(member), "incarnation": int(incarnation)}:
                return self._delete(member, incarnation)
            case {"do": "close", "node": str(node), "move": bool(move)}:
                self._closed[node] = move
            case {"do": "open", "node": str(node)}:
                self._closed.pop(node, None)
                for member_waiting in self._waiting:
                    self._count += 1
                    heapq.heappush(self._due, (0.0, self._count, member_waiting))
                self._waiting.clear()
            case {"do": "launch", "member": str(member)}:
                return self._launch(member)
            case {"do": "names", "member": str(member), "wanted": str(wanted), "names": list(names)}:
                return self._set_names(member, wanted, names)
            case _:
                raise AssertionError(message)
        return None

    def _set_names(self, member: str, wanted: str, names: list[str]) -> str | None:
        pid = next((life.pid for life in self._lives.values() if life.member.name == member), None)
        others = names or [other.name for other in self._members if other.name != member] or [member]
        if pid is None:
            return f"{member} is not alive"
        command = [sys.executable, "-I", "-S", _NAMES, str(pid), wanted, *others]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=NAMES_S)
        except subprocess.TimeoutExpired:
            return f"names of {member} were not {wanted} within {NAMES_S} s"
        return None if done.returncode == 0 else (done.stdout + done.stderr).strip()

    def _launch(self, name: str) -> str | None:
        if any(life.member.name == name for life in self._lives.values()):
            return f"{name} lives already"
        (member,) = (member for member in self._members if member.name == name)
        self._start(member, member.node)
        return None

    def _delete(self, member: str, incarnation: int) -> str | None:
        for life in self._lives.values():
            if (life.member.name, life.incarnation) == (member, incarnation):
                life.deleted = True
                signal.pidfd_send_signal(life.pidfd, signal.SIGKILL)
                return None
        return f"incarnation {incarnation} of {member} is not alive"


def main() -> None:
    kernel.die_with_parent()
    alive, control = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    with open(sys.argv[3], "rb") as file:
        spec = msgspec.json.decode(file.read(), type=Spec)
    grant = msgspec.json.decode(sys.argv[4], type=Grant)
    os.set_inheritable(alive, False)
    control.set_inheritable(False)
    control.setblocking(False)
    try:
        separate = spec.isolation != "processes"
        ground: Ground = Separate(spec, grant) if separate else Plain(spec, grant)
        Host(spec, ground, control, Injector(spec, grant) if separate else None).run(alive)
    except (BrokenPipeError, ConnectionResetError):
        return  # The runner is gone; the keeper ends everything.
    except Exception as error:
        traceback.print_exc()
        reason = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        channel.send(control, {"event": "broken", "reason": reason})
        sys.exit(1)


if __name__ == "__main__":
    main()
