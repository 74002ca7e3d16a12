"""A toy member: writes events, serves its name over TCP, does what tests ask through a socket in its scratch folder.

    python toy.py MEMBER INCARNATION EVENTS ADDRESS DATA_INTERFACE

A replica's main process starts a trainer, as a Monarch worker host does: a child with a process group of its own in the
same session. The controller has no trainer. SIGTERM ends it with status 0. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from typing import Any

PORT = 4000
CONTROL = "control"


class Toy:
    def __init__(self) -> None:
        self.member, incarnation, self.events, self.address, self.data_interface = sys.argv[1:6]
        self.incarnation = int(incarnation)
        self.seq = 0

    def write(self, kind: str, **fields: Any) -> None:
        head = {"kind": kind, "mono_s": time.monotonic(), "wall_s": time.time()}
        line = head | {"member": self.member, "incarnation": self.incarnation, "seq": self.seq} | fields
        self.seq += 1
        self.append(json.dumps(line) + "\n")

    def append(self, text: str) -> None:
        fd = os.open(self.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, text.encode())
        os.close(fd)

    def start_trainer(self) -> None:
        if os.fork() != 0:
            return
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        name = f"{self.member}:toy"
        built = {"recipe": "toy", "device": "cpu", "parameters": 1, "boot_s": {"import": 0.1, "build": 0}}
        self.write("trainer_started", pid=os.getpid(), replica_id=name, **built)
        while True:
            signal.pause()

    def answer(self, request: dict[str, Any]) -> Any:
        return getattr(self, "do_" + request.pop("do"))(**request)

    def do_look(self) -> dict[str, Any]:
        names = [name for _index, name in socket.if_nameindex()]
        return {
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "interfaces": {name: interface_address(name) for name in names},
            "seen_interfaces": sorted(os.listdir("/sys/class/net")),
            "tmp": sorted(os.listdir("/tmp")),
            "tmpdir": os.environ["TMPDIR"],
            "folder": os.getcwd(),
            "groups": open("/proc/self/cgroup").read(),
            "resolv": open("/etc/resolv.conf").read(),
            "address": self.address,
        }

    def do_resolve(self, name: str) -> str | None:
        try:
            return socket.gethostbyname(name)
        except socket.gaierror:
            return None

    def do_reach(self, host: str) -> str:
        with socket.create_connection((host, PORT), timeout=5) as peer:
            return peer.makefile().readline()

    def do_append(self, text: str) -> None:
        self.append(text)

    def do_touch(self, path: str) -> None:
        open(path, "w").close()

    def do_exists(self, path: str) -> bool:
        return os.path.exists(path)

    def do_exit(self, status: int) -> None:
        os._exit(status)

    def do_orphan(self) -> int:
        """Leave a grandchild with a session of its own behind; its pid."""
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            os.setsid()
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    signal.pause()
            os.write(writer, str(pid).encode())
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(between, 0)
        return int(os.read(reader, 20))


def interface_address(name: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            reply = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(reply[20:24])


def serve(toy: Toy) -> None:
    class Name(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(f"{toy.member}/{toy.incarnation}".encode())

    class Control(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(json.dumps(toy.answer(json.loads(self.rfile.readline()))).encode() + b"\n")

    if os.path.exists(CONTROL):
        os.unlink(CONTROL)
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    names = socketserver.ThreadingTCPServer((toy.address if toy.data_interface == "lo" else "", PORT), Name)
    control = socketserver.ThreadingUnixStreamServer(CONTROL, Control)
    if toy.member == "controller":
        toy.write("controller_started", replicas=2)
    else:
        toy.start_trainer()
    for server in (names, control):
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    toy = Toy()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # In every thread, so that it waits for sigwait.
    serve(toy)
    signal.sigwait({signal.SIGTERM})
    if toy.member == "controller":
        toy.write("controller_finished", reason="stopped")


if __name__ == "__main__":
    main()
