"""The fault points of the toy job: orders over a Unix socket in the member's folder, followed while they are renewed.

The same contract as the real job's, in the standard library alone; `tests/contract` holds both to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SOCKET = "fault-points.sock"
ANYWHERE = ("pause", "delay", "hold_gil")
ACTIONS = {
    "in_dataload": (*ANYWHERE, "error"),
    "in_forward": (*ANYWHERE, "error"),
    "before_allreduce": (*ANYWHERE, "nan", "flip_gradient"),
    "in_allreduce": (*ANYWHERE, "error"),
    "before_commit": (*ANYWHERE, "lie"),
    "after_commit": (*ANYWHERE, "flip_weight"),
    "in_heal": (*ANYWHERE, "error"),
    "in_serve": (*ANYWHERE, "error"),
    "in_checkpoint": (*ANYWHERE, "error", "corrupt"),
}

_libc_under_gil = ctypes.PyDLL(None)


class Ordered(Exception):
    """What fails at a point fails by this."""


@dataclass
class Order:
    name: str
    ttl_s: float
    point: str
    action: str
    delay_s: float | None
    times: float
    hits: int = 0
    deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.deadline_s = time.monotonic() + self.ttl_s


class Points:
    """The orders of one trainer; `tell` gets each hit. Used from any thread."""

    def __init__(self, tell: Callable[[dict[str, object]], None]) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._orders: dict[str, Order] = {}

    def at(self, point: str, step: int) -> list[str]:
        """Do what is ordered at the point, each order once; gives the actions that are left to the caller."""
        met: set[str] = set()
        rest: list[str] = []
        while (order := self._next(point, met)) is not None:
            met.add(order.name)
            self._tell({"order": order.name, "point": point, "action": order.action, "step": step})
            if order.action == "hold_gil":
                self._hold_gil(order.delay_s or 0)
            elif order.action in ANYWHERE:
                self._stay(order, order.delay_s or math.inf)
            elif order.action == "error":
                raise Ordered(f"ordered to fail {point}, by {order.name}")
            else:
                rest.append(order.action)
        return rest

    def answer(self, line: bytes) -> dict[str, object]:
        """The reply to one request."""
        request = json.loads(line)
        do, name = request.pop("do"), request.pop("order")
        with self._changed:
            self._forget_expired()
            order = self._orders.get(name)
            if do == "arm":
                if request["action"] not in ACTIONS[request["point"]]:
                    return {"ok": False, "error": f"{request['action']} does not go with {request['point']}"}
                times = request.pop("times") or math.inf
                order = self._orders[name] = Order(name, times=times, **request)
            elif order is None:
                return {"ok": False, "error": f"no order {name}: it was never armed, or its time is over"}
            elif do == "renew":
                order.renew()
            else:
                del self._orders[name]
            self._changed.notify_all()
            return {"ok": True, "hits": order.hits}

    def _next(self, point: str, met: set[str]) -> Order | None:
        with self._changed:
            self._forget_expired()
            for order in self._orders.values():
                if order.point == point and order.name not in met and order.hits < order.times:
                    order.hits += 1
                    return order
        return None

    def _forget_expired(self) -> None:
        now_s = time.monotonic()
        self._orders = {name: order for name, order in self._orders.items() if order.deadline_s > now_s}

    def _stay(self, order: Order, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        with self._changed:
            while self._orders.get(order.name) is order:
                left_s = min(until_s, order.deadline_s) - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def _hold_gil(self, seconds: float) -> None:
        """No renewal is heard meanwhile, so every order lives on that much longer."""
        with self._changed:
            for order in self._orders.values():
                order.deadline_s += seconds
        _libc_under_gil.usleep(ctypes.c_uint(round(seconds * 1e6)))


class Server(socketserver.ThreadingUnixStreamServer):
    """Takes orders at the socket in `folder`, on daemon threads."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, points: Points, folder: str) -> None:
        self.points = points
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        path = f"/proc/self/fd/{self._folder}/{SOCKET}"  # A socket's own path must be short.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        super().__init__(path, _Connection)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        os.close(self._folder)

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender that went away."""


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Server)
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.points.answer(line)).encode() + b"\n")
