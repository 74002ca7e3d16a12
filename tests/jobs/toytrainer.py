"""A replica of the toy job: one number is trained, its gradients averaged by the lighthouse, its state healed by peers.

The pod's main process starts the trainer as a child and ends when that ends. The trainer sends the lighthouse its
gradient and its vote and is told what became of the step; without an answer it connects anew. One that is behind
fetches the state from a peer.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import mmap
import os
import random
import signal
import socket
import socketserver
import struct
import threading
import time
from typing import NamedTuple

from toypoints import Ordered, Points, Server

LIGHTHOUSE_PORT, STATE_PORT = 29510, 29600
CONNECT_S, ORDER_S, HEAL_S = 1.0, 3.0, 0.7
RETRY_S = 0.05
RATE = 0.1
RESTART_LATE_S = 4.0
SKIPS_EVERY = 3
WORKSPACE_BYTES = 1 << 20
CHECKPOINT_BYTES = 64 << 10


class Events:
    """Appends one line per event; used from several threads."""

    def __init__(self, path: str, member: str, incarnation: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._envelope = {"member": member, "incarnation": incarnation}
        self._lock = threading.Lock()
        self._seq = 0

    def write(self, kind: str, **fields: object) -> None:
        with self._lock:
            clock = {"mono_s": time.monotonic(), "wall_s": time.time(), "seq": self._seq}
            os.write(self._fd, json.dumps({"kind": kind, **self._envelope, **clock, **fields}).encode() + b"\n")
            self._seq += 1


class State(NamedTuple):
    """What is trained: a number, and how many updates it has seen."""

    step: int
    weight: float

    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def replica(args: argparse.Namespace) -> None:
    """The main process: it outlives the trainer by nothing."""
    ends = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    if args.defect == "restarts_late" and args.incarnation > 1:
        time.sleep(RESTART_LATE_S)
    trainer = os.fork()
    if trainer == 0:
        Trainer(args).run()
    number = signal.sigwait(ends)
    if number == signal.SIGTERM:
        os.kill(trainer, signal.SIGTERM)
    os.waitpid(trainer, 0)
    os._exit(0 if number == signal.SIGTERM else 1)


class Trainer:
    """The trainer process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.events = Events(args.events, args.member, args.incarnation)
        self.points = Points(lambda hit: self.events.write("fault_point_hit", **hit))
        self.state = State(0, 1.0)
        self.quorum_id = 0
        self.participants = 0
        self.finished = False
        self.tries = 0
        self.error: str | None = None

    def run(self) -> None:
        """Until SIGTERM."""
        threading.Thread(target=self.end_on_signal, daemon=True).start()
        Server(self.points, self.args.scratch)
        Donor(self)
        identity = {"replica_id": f"{self.args.member}:{self.args.incarnation}", "recipe": "toy", "device": "none"}
        self.events.write("trainer_started", pid=os.getpid(), boot_s={}, parameters=1, **identity)
        while not self.finished:
            try:
                address = (self.args.lighthouse, LIGHTHOUSE_PORT)
                with socket.create_connection(address, timeout=CONNECT_S) as connection:
                    connection.settimeout(ORDER_S)
                    self.train(connection)
            except OSError:
                time.sleep(RETRY_S)
        while True:
            signal.pause()

    def end_on_signal(self) -> None:
        signal.sigwait({signal.SIGTERM})
        if not self.finished:
            self.events.write("trainer_finished", step=self.state.step, reason="stopped")
        os._exit(0)

    def train(self, connection: socket.socket) -> None:
        """Try steps until the last one is committed. OSError when the lighthouse or a donor is lost."""
        lines = connection.makefile("rb")
        while not self.finished:
            begun_s = time.monotonic()
            connection.sendall(json.dumps(self.attempt()).encode() + b"\n")
            line = lines.readline()
            if not line:
                raise ConnectionError("the lighthouse has left us out")
            order = json.loads(line)
            if order["do"] == "heal":
                self.heal(order)
            else:
                self.end_step(order, time.monotonic() - begun_s)

    def attempt(self) -> dict[str, object]:
        """One step up to its vote."""
        step = self.state.step + 1
        self.error = None
        gradient = self.state.weight - random.Random(f"{self.args.member}/{step}").random() / 2
        try:
            self.points.at("in_dataload", step)
            self.points.at("in_forward", step)
            with mmap.mmap(-1, WORKSPACE_BYTES) as workspace:
                workspace[:: mmap.PAGESIZE] = bytes(WORKSPACE_BYTES // mmap.PAGESIZE)
            time.sleep(self.args.step_s)
            for harm in self.points.at("before_allreduce", step):
                gradient = float("nan") if harm == "nan" else flip(gradient, bit=62)
            self.points.at("in_allreduce", step)
        except Ordered as error:
            self.error = str(error)
        self.tries += 1
        vote = self.error is None
        if self.args.defect == "skips_commits" and self.args.member == "replica-0" and self.tries % SKIPS_EVERY == 0:
            vote = False
        if "lie" in self.points.at("before_commit", step):
            vote = not vote
        me = {"name": self.args.member, "host": self.args.host, "quorum_id": self.quorum_id}
        return {"say": "try", **me, "step": self.state.step, "gradient": gradient, "one": 1.0, "vote": vote}

    def end_step(self, order: dict, duration_s: float) -> None:
        """The step is committed, or not."""
        step = order["step"]
        quorum = {"quorum_id": order["quorum_id"], "participants": len(order["members"])}
        if order["quorum_id"] != self.quorum_id:
            grown = 0 < self.participants < len(order["members"])
            if self.args.defect == "survivor_dies_at_rejoin" and grown:
                os._exit(1)
            at = {"step": self.state.step, "max_step": step - 1, "members": order["members"], "heal": False}
            self.events.write("quorum", **quorum, **at)
        self.quorum_id, self.participants = quorum["quorum_id"], quorum["participants"]
        if order["commit"]:
            self.state = State(step, self.state.weight - RATE * order["gradient"])
            if "flip_weight" in self.points.at("after_commit", step):
                self.state = self.state._replace(weight=flip(self.state.weight, bit=52))
        facts = {"healing": False, "loss": abs(self.state.weight), "grad_norm": abs(order["gradient"]), "lr": RATE}
        facts |= {"tokens": 8, "duration_s": duration_s, "error": None, "batch": step, "gradient_scale": order["one"]}
        facts["rss_bytes"] = resident_bytes()
        facts |= (
            {"digest": self.state.digest()} if order["commit"] else {"digest": None, "error": self.error or "a peer"}
        )
        self.events.write("step", step=step, committed=order["commit"], **quorum, **facts)
        if order["commit"] and self.args.checkpoint_every and step % self.args.checkpoint_every == 0:
            self.write_checkpoint()
        if self.state.step >= self.args.steps:
            self.finished = True
            self.events.write("trainer_finished", step=step, reason="steps_reached")

    def heal(self, order: dict) -> None:
        """Take the state of a peer. OSError when it does not give it in time."""
        at = {"quorum_id": order["quorum_id"], "step": self.state.step, "max_step": order["step"]}
        self.events.write("quorum", **at, participants=order["participants"], members=None, heal=True)
        self.events.write("heal_started", step=order["step"], source=order["source"])
        with contextlib.suppress(Ordered):
            self.points.at("in_heal", order["step"] + 1)
        with socket.create_connection((order["host"], STATE_PORT), timeout=HEAL_S) as donor:
            donor.sendall(self.args.member.encode() + b"\n")
            line = donor.makefile("rb").readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the donor left")
        self.state = State(*json.loads(line))
        self.events.write("heal_ended", step=self.state.step, source=order["source"], digest=self.state.digest())
        if self.args.defect == "healed_state_differs":
            self.state = self.state._replace(weight=self.state.weight + 1)

    def write_checkpoint(self) -> None:
        """Aside, then renamed. A disk that takes none is no reason to stop training."""
        path = f"{self.args.scratch}/disk/checkpoint"
        with contextlib.suppress(OSError, Ordered):
            with open(f"{path}.part", "wb") as file:
                file.write(json.dumps(self.state).encode().ljust(CHECKPOINT_BYTES))
                file.flush()
                os.fsync(file.fileno())
            os.rename(f"{path}.part", path)
            if "corrupt" in self.points.at("in_checkpoint", self.state.step):
                os.truncate(path, CHECKPOINT_BYTES // 2)


class Donor(socketserver.ThreadingTCPServer):
    """Gives the state away, on threads of its own."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        super().__init__((trainer.args.address, STATE_PORT), _Serve)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever healed has gone."""


class _Serve(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Donor)
        trainer = self.server.trainer
        healing = self.rfile.readline().decode().strip()
        trainer.events.write("heal_served", step=trainer.state.step, destinations=[healing])
        trainer.points.at("in_serve", trainer.state.step + 1)
        self.wfile.write(json.dumps(trainer.state).encode() + b"\n")


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def flip(number: float, bit: int) -> float:
    """One bit of the exponent: 52 doubles or halves, 62 makes a small number huge."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    (flipped,) = struct.unpack("<d", struct.pack("<Q", bits ^ 1 << bit))
    return float(flipped)
