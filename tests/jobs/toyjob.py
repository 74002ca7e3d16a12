"""A job that keeps the workload contract without torch: replicas commit steps together through a barrier.

Used to run whole experiments in seconds: `workload: {program: toyjob}` with this folder on PYTHONPATH. Its controller
counts who takes part in each step; a replica whose connection ends is left out of the next one; one that comes heals by
taking the step the others are at. Settings bring in the defects that monitors must see.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import selectors
import signal
import socket
import sys
import time

PORT = 29400
DEFECTS = ("", "survivor_dies_at_rejoin", "healed_state_differs", "never_commits", "controller_fails")


class Events:
    def __init__(self, path: str, member: str, incarnation: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._envelope = {"member": member, "incarnation": incarnation}
        self._seq = 0

    def write(self, kind: str, **fields: object) -> None:
        clock = {"mono_s": time.monotonic(), "wall_s": time.time(), "seq": self._seq}
        os.write(self._fd, json.dumps({"kind": kind, **self._envelope, **clock, **fields}).encode() + b"\n")
        self._seq += 1


def describe(args: argparse.Namespace) -> None:
    settings = dict(item.split("=", 1) for item in args.set)
    for key in settings:
        if key not in ("step_s", "defect"):
            sys.exit(64)
    if settings.get("defect", "") not in DEFECTS:
        print(f"defect {settings['defect']!r} is not known; known are {', '.join(DEFECTS)}", file=sys.stderr)
        sys.exit(64)
    common = ["--events", "{events}", "--member", "{member}", "--incarnation", "{incarnation}"]
    common += ["--defect", settings.get("defect", ""), "--steps", str(args.steps)]
    program = ["{python}", "-m", "toyjob"]
    controller = [*program, "controller", "--address", "{address}", "--step-s", settings.get("step_s", "0.02"), *common]
    controller += ["--min-replicas", str(args.min_replicas)]
    replica = [*program, "replica", "--controller", "{host:controller}", *common]
    roles = {
        "controller": {"members": ["controller"], "command": controller},
        "replica": {"members": [f"replica-{i}" for i in range(args.replicas)], "command": replica},
    }
    head = {"version": 1, "recipe": args.recipe, "replicas": args.replicas, "min_replicas": args.min_replicas}
    print(json.dumps({**head, "steps": args.steps, "roles": roles, "env": {}}))


def controller(args: argparse.Namespace) -> None:
    """Each step: wait for every connected replica, then tell all of them the step and how many took part."""
    events = Events(args.events, args.member, args.incarnation)
    events.write("controller_started", replicas=args.min_replicas)
    server = socket.create_server((args.address, PORT))
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    ready: dict[socket.socket, bool] = {}
    step, quorum_id, group = 0, 0, frozenset[socket.socket]()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    while not stopping and step < args.steps:
        for key, _ in selector.select(timeout=0.05):
            if key.fileobj is server:
                connection, _ = server.accept()
                selector.register(connection, selectors.EVENT_READ)
                ready[connection] = False
                continue
            connection = key.fileobj
            message = b""
            with contextlib.suppress(ConnectionError):
                message = connection.recv(64)
            ready[connection] = bool(message)
            if not message:
                selector.unregister(connection)
                del ready[connection]
        if args.defect == "never_commits" or len(ready) < args.min_replicas or not all(ready.values()):
            continue
        if args.defect == "controller_fails" and step == 30:
            sys.exit(3)
        if group != frozenset(ready):
            group, quorum_id = frozenset(ready), quorum_id + 1
        step += 1
        time.sleep(args.step_s)
        order = json.dumps({"step": step, "quorum_id": quorum_id, "participants": len(group)}).encode() + b"\n"
        for connection in ready:
            ready[connection] = False
            with contextlib.suppress(ConnectionError):
                connection.sendall(order)
    events.write("controller_finished", reason="stopped" if stopping else "steps_reached")


def replica(args: argparse.Namespace) -> None:
    """Take part in step after step; the state is the step, and its digest says so."""
    events = Events(args.events, args.member, args.incarnation)
    connection = connect(args.controller)
    identity = {"replica_id": f"{args.member}:{args.incarnation}", "recipe": "toy", "device": "none", "parameters": 1}
    events.write("trainer_started", pid=os.getpid(), boot_s={}, **identity)
    state, quorum_id, salt, participants = None, None, "", 0
    lines = connection.makefile("rb")
    while True:
        connection.sendall(b"ready\n")
        line = lines.readline()
        if not line:
            events.write("trainer_finished", step=state or 0, reason="stopped")
            return
        order = json.loads(line)
        if order["quorum_id"] != quorum_id:
            if args.defect == "survivor_dies_at_rejoin" and quorum_id and order["participants"] > participants:
                os._exit(1)
            quorum_id, participants = order["quorum_id"], order["participants"]
            heal = state is None and order["step"] > 1
            at = {"step": state or 0, "participants": participants, "max_step": order["step"] - 1}
            events.write("quorum", quorum_id=quorum_id, members=None, heal=heal, **at)
            if heal:
                salt = "other" if args.defect == "healed_state_differs" else ""
                events.write("heal_started", step=order["step"] - 1, source="peer")
                events.write("heal_ended", step=order["step"] - 1, source="peer", digest=digest(order["step"] - 1, ""))
        state = order["step"]
        facts = {"healing": False, "loss": 1 / state, "grad_norm": 1.0, "tokens": 8, "lr": 0.1, "duration_s": 0.02}
        result = {"committed": True, "digest": digest(state, salt), "error": None}
        events.write("step", **order, **facts, **result)


def digest(step: int, salt: str) -> str:
    return hashlib.sha256(f"{step}{salt}".encode()).hexdigest()[:16]


def connect(host: str, timeout_s: float = 10.0) -> socket.socket:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return socket.create_connection((host, PORT), timeout=timeout_s)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for run in (describe, controller, replica):
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        command.add_argument("--steps", type=int, required=True)
        if run is describe:
            command.add_argument("--recipe", required=True)
            command.add_argument("--replicas", type=int, required=True)
            command.add_argument("--min-replicas", type=int, required=True)
            command.add_argument("--seed", type=int, default=1)
            command.add_argument("--set", action="append", default=[])
            continue
        for text in ("--events", "--member", "--defect"):
            command.add_argument(text, required=True)
        command.add_argument("--incarnation", type=int, required=True)
        if run is controller:
            command.add_argument("--address", required=True)
            command.add_argument("--step-s", type=float, required=True)
            command.add_argument("--min-replicas", type=int, required=True)
        else:
            command.add_argument("--controller", required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
