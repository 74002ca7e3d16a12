"""A fault-tolerant job that keeps the workload contract without torch, so that whole experiments take seconds.

Used as `workload: {program: toyjob}` with this folder on PYTHONPATH. Replicas (`toytrainer`) train one number together:
the lighthouse here averages their gradients and commits a step when all of them voted for it. Whoever leaves or is late
is left out and the step tried again without; whoever is behind is sent to a peer for its state. The controller ends the
job with its last step and does nothing else. Settings bring in the defects that monitors must see.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import selectors
import signal
import socket
import sys
import time

from toytrainer import LIGHTHOUSE_PORT, RETRY_S, Events, replica

LATE_S = 1.0
"""How long a step waits for a member once the first one is there."""
GATHER_S = 3.0
"""How long a lighthouse that has just started waits for all replicas."""
TICK_S = 0.02
DEFECTS = ["survivor_dies_at_rejoin", "healed_state_differs", "never_commits", "takes_strangers", "commits_nan"]
DEFECTS += ["restarts_late", "notices_late", "skips_commits"]
SETTINGS = {"step_s": "0.02", "defect": "", "checkpoint_every": "0"}


def replicas(number: int) -> list[str]:
    return [f"replica-{index}" for index in range(number)]


def describe(args: argparse.Namespace) -> None:
    settings = SETTINGS | dict(item.split("=", 1) for item in args.set)
    if unknown := settings.keys() - SETTINGS.keys():
        print(f"unknown setting {min(unknown)!r}; known are {', '.join(SETTINGS)}", file=sys.stderr)
        sys.exit(64)
    if settings["defect"] not in ("", *DEFECTS):
        print(f"defect {settings['defect']!r} is not known; known are {', '.join(DEFECTS)}", file=sys.stderr)
        sys.exit(64)
    me = ["--events", "{events}", "--member", "{member}", "--incarnation", "{incarnation}", "--address", "{address}"]
    me += ["--defect", settings["defect"], "--steps", str(args.steps), "--lighthouse", "{host:lighthouse}"]
    program = ["{python}", "-m", "toyjob"]
    needs = ["--replicas", str(args.replicas), "--min-replicas", str(args.min_replicas)]
    own = ["--host", "{host}", "--scratch", "{scratch}", "--step-s", settings["step_s"]]
    own += ["--checkpoint-every", settings["checkpoint_every"]]
    trainer = [*program, "replica", *me, *own]
    roles = {
        "lighthouse": {"members": ["lighthouse"], "command": [*program, "lighthouse", *me, *needs]},
        "controller": {"members": ["controller"], "command": [*program, "controller", *me, *needs]},
        "replica": {"members": replicas(args.replicas), "command": trainer},
        "leftover": {"members": ["leftover-0"], "command": trainer, "on_demand": True},
    }
    head = {"version": 1, "recipe": args.recipe, "replicas": args.replicas, "min_replicas": args.min_replicas}
    print(json.dumps({**head, "steps": args.steps, "roles": roles, "env": {}, "capabilities": ["fault_points"]}))


def controller(args: argparse.Namespace) -> None:
    """Wait for the end of the job."""
    events = Events(args.events, args.member, args.incarnation)
    events.write("controller_started", replicas=args.replicas)

    def end(reason: str) -> None:
        events.write("controller_finished", reason=reason)
        os._exit(0)

    signal.signal(signal.SIGTERM, lambda number, frame: end("stopped"))
    while True:
        with contextlib.suppress(OSError), socket.create_connection((args.lighthouse, LIGHTHOUSE_PORT)) as connection:
            connection.sendall(b'{"say": "watch"}\n')
            if connection.recv(64):
                end("steps_reached")
        time.sleep(RETRY_S)


def lighthouse(args: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    Lighthouse(args).run()


class Peer:
    """A connection; of a replica `tried` is its attempt at the step, None while it is awaited."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.partial = b""
        self.name: str | None = None
        self.tried: dict | None = None

    def take(self) -> list[dict] | None:
        """The messages that came; None when it has left."""
        try:
            data = self.connection.recv(65536)
        except OSError:
            data = b""
        *lines, self.partial = (self.partial + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None

    def tell(self, **order: object) -> None:
        self.tried = None
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(order).encode() + b"\n")


class Lighthouse:
    """Who takes part, and what became of each step."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.selector = selectors.DefaultSelector()
        self.server = socket.create_server((args.address, LIGHTHOUSE_PORT))
        self.selector.register(self.server, selectors.EVENT_READ)
        strangers = ["leftover-0"] if args.defect == "takes_strangers" else []
        self.welcome = {*replicas(args.replicas), *strangers}
        self.peers: dict[str, Peer] = {}
        self.watchers: list[Peer] = []
        self.first_s: float | None = None
        """When the first attempt at the present step came."""
        self.started_s: float | None = None
        self.step = self.quorum_id = self.heals = 0
        self.group: frozenset[str] = frozenset()
        Events(args.events, args.member, args.incarnation).write("lighthouse_started", address=args.address)

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select(TICK_S):
                if key.fileobj is self.server:
                    peer = Peer(self.server.accept()[0])
                    self.selector.register(peer.connection, selectors.EVENT_READ, peer)
                else:
                    self.hear(key.data)
            if self.first_s is not None and time.monotonic() > self.first_s + LATE_S:
                for peer in [peer for peer in self.peers.values() if peer.tried is None]:
                    self.leave(peer)
            self.advance()

    def hear(self, peer: Peer) -> None:
        messages = peer.take()
        if messages is None:
            if self.args.defect == "notices_late":
                self.selector.unregister(peer.connection)
            else:
                self.leave(peer)
            return
        for message in messages:
            if message["say"] == "watch":
                self.watchers.append(peer)
                continue
            if message["name"] not in self.welcome:
                self.leave(peer)
                return
            before = self.peers.setdefault(message["name"], peer)
            if before is not peer:  # It has connected anew.
                self.leave(before)
                self.peers[message["name"]] = peer
            peer.name, peer.tried = message["name"], message
            self.first_s = self.first_s or time.monotonic()

    def leave(self, peer: Peer) -> None:
        with contextlib.suppress(KeyError):
            self.selector.unregister(peer.connection)
        peer.connection.close()
        if peer.name is not None and self.peers.get(peer.name) is peer:
            del self.peers[peer.name]
        if peer in self.watchers:
            self.watchers.remove(peer)

    def advance(self) -> None:
        """End the step once everyone has tried it."""
        if self.step >= self.args.steps:
            for watcher in self.watchers:
                watcher.tell(do="finish")
            return
        tries = {name: peer.tried for name, peer in self.peers.items() if peer.tried is not None}
        if not tries or len(tries) < len(self.peers) or not self.enough(len(tries)):
            return
        self.step = max(self.step, *(tried["step"] for tried in tries.values()))
        self.quorum_id = max(self.quorum_id, *(tried["quorum_id"] for tried in tries.values()))
        self.first_s = None
        if not self.heal(tries):
            self.end_step(tries)

    def enough(self, number: int) -> bool:
        """A lighthouse that has just started must not form a quorum without replicas that train on."""
        if self.args.defect == "never_commits" or number < self.args.min_replicas:
            return False
        self.started_s = self.started_s or time.monotonic()
        waited = self.group or time.monotonic() > self.started_s + GATHER_S
        return number == self.args.replicas or bool(waited)

    def heal(self, tries: dict[str, dict]) -> bool:
        """Send whoever is behind to one that is not, each time to another; whether anyone was."""
        donors = [tried for tried in tries.values() if tried["step"] == self.step]
        behind = [name for name, tried in tries.items() if tried["step"] < self.step]
        for name in behind:
            donor = donors[self.heals % len(donors)]
            self.heals += 1
            source = {"source": donor["name"], "host": donor["host"]}
            coming = {"quorum_id": self.quorum_id + 1, "participants": len(tries)}
            self.peers[name].tell(do="heal", step=self.step, **source, **coming)
            self.first_s = time.monotonic()
        return bool(behind)

    def end_step(self, tries: dict[str, dict]) -> None:
        """Commit what all voted for, unless one of them was lost over it."""
        lost = self.group - tries.keys()
        if self.group != tries.keys():
            self.group, self.quorum_id = frozenset(tries), self.quorum_id + 1
        mean = {what: sum(tried[what] for tried in tries.values()) / len(tries) for what in ("gradient", "one")}
        fit = math.isfinite(mean["gradient"]) or self.args.defect == "commits_nan"
        commit = fit and not lost and all(tried["vote"] for tried in tries.values())
        for name in tries:
            result = {"commit": commit, **mean}
            who = {"quorum_id": self.quorum_id, "members": sorted(tries)}
            self.peers[name].tell(do="step", step=self.step + 1, **who, **result)
        self.step += commit


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for run in (describe, lighthouse, controller, replica):
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        command.add_argument("--steps", type=int, required=True)
        if run is not replica:
            command.add_argument("--replicas", type=int, required=True)
            command.add_argument("--min-replicas", type=int, required=True)
        if run is describe:
            command.add_argument("--recipe", required=True)
            command.add_argument("--seed", type=int, default=1)
            command.add_argument("--set", action="append", default=[])
            continue
        for text in ("--events", "--member", "--defect", "--address", "--lighthouse"):
            command.add_argument(text, required=True)
        command.add_argument("--incarnation", type=int, required=True)
        if run is replica:
            for text in ("--host", "--scratch"):
                command.add_argument(text, required=True)
            command.add_argument("--step-s", type=float, required=True)
            command.add_argument("--checkpoint-every", type=int, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
