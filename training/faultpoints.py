"""Fault points: places in a trainer where it harms itself when it is ordered to, for as long as the order is renewed.

Orders come as JSON lines over the Unix socket ``fault-points.sock`` in the member's scratch folder, one reply a line:
``arm`` (an order's id, its time to live, a point, an action), ``renew``, ``disarm``. The trainer keeps the time: an
order that nobody renews is forgotten, whoever died. While none is armed a point costs one look into an empty dict.

Not here: where the points are (``trainer``, ``healing``, ``checkpoints``) and what needs tensors (``harm``).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from training import events

SOCKET = "fault-points.sock"
TTL_S_MIN, TTL_S_MAX = 0.5, 15.0
HOLD_GIL_S_MAX = 60.0
ORDERS_MAX = 100
LINE_BYTES_MAX = 4096
IDLE_S_MAX = 60.0

Point = Literal[
    "in_dataload",
    "in_forward",
    "before_allreduce",
    "in_allreduce",
    "before_commit",
    "after_commit",
    "in_heal",
    "in_serve",
    "in_checkpoint",
]
Action = Literal["pause", "delay", "hold_gil", "error", "nan", "flip_gradient", "flip_weight", "lie", "corrupt"]

_ANYWHERE = ("pause", "delay", "hold_gil")
ACTIONS: dict[str, tuple[str, ...]] = {
    "in_dataload": (*_ANYWHERE, "error"),
    "in_forward": (*_ANYWHERE, "error"),
    "before_allreduce": (*_ANYWHERE, "nan", "flip_gradient"),
    "in_allreduce": (*_ANYWHERE, "error"),
    "before_commit": (*_ANYWHERE, "lie"),
    "after_commit": (*_ANYWHERE, "flip_weight"),
    "in_heal": (*_ANYWHERE, "error"),
    "in_serve": (*_ANYWHERE, "error"),
    "in_checkpoint": (*_ANYWHERE, "error", "corrupt"),
}
assert set(ACTIONS) == set(get_args(Point))

_libc_under_gil = ctypes.PyDLL(None)
"""The C library, called without giving Python's lock back."""


class Ordered(RuntimeError):
    """What fails at a point fails by this: somebody ordered it."""


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """One line to the socket. ``order`` is an id that its sender chose."""

    order: Annotated[str, Meta(min_length=1, max_length=200)]


class Arm(Request, frozen=True, kw_only=True, tag="arm"):
    """Do ``action`` at ``point``, at most ``times`` times, until ``ttl_s`` passed without a renewal."""

    ttl_s: float
    point: Point
    action: Action
    delay_s: float | None = None
    times: Annotated[int, Meta(ge=1)] | None = None


class Renew(Request, frozen=True, kw_only=True, tag="renew"):
    """Keep an order for its time to live from now on."""


class Disarm(Request, frozen=True, kw_only=True, tag="disarm"):
    """Forget an order; who waits for its end goes on."""


_decoder = msgspec.json.Decoder(Arm | Renew | Disarm)


class _Refused(Exception):
    """A request that is not followed; its text is the reply."""


class _Order:
    """An order that is held. ``deadline`` is on the clock of its ``FaultPoints``."""

    def __init__(self, arm: Arm, now: float) -> None:
        self.arm = arm
        self.deadline = now + arm.ttl_s
        self.hits = 0

    def left(self) -> bool:
        """Whether it may strike once more."""
        return self.arm.times is None or self.hits < self.arm.times


class FaultPoints:
    """The orders of one trainer. All methods may be called from any thread."""

    def __init__(
        self, emit: Callable[[events.Event], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._clock = clock
        self._changed = threading.Condition()
        self._orders: dict[str, _Order] = {}
        self._armed: dict[str, list[_Order]] = {}

    def at(self, point: Point, step: int, without: Collection[str] = ()) -> Collection[str]:
        """The trainer is at ``point`` and tries update ``step``: do what is ordered there, each order once.

        Gives the actions that the caller must do, those that are not a wait; ``without`` are those that it cannot do
        this time. Raises Ordered where the order is an error.
        """
        if point not in self._armed:
            return ()
        return self._strike(point, step, without)

    def answer(self, line: bytes) -> dict[str, Any]:
        """The reply to one request."""
        try:
            request = _decoder.decode(line)
            with self._changed:
                self._forget_expired()
                return {"ok": True, "hits": self._follow(request)}
        except (_Refused, msgspec.MsgspecError, UnicodeDecodeError) as error:
            return {"ok": False, "error": str(error).partition("\n")[0]}

    def _follow(self, request: Arm | Renew | Disarm) -> int:
        """With the lock; gives the hits so far."""
        order = self._orders.get(request.order)
        if isinstance(request, Arm):
            if order is not None:
                raise _Refused(f"order {request.order} is held already; disarm it, or choose another id")
            _check(request)
            if len(self._orders) >= ORDERS_MAX:
                raise _Refused(f"{ORDERS_MAX} orders are held already; disarm one")
            order = self._orders[request.order] = _Order(request, self._clock())
        elif order is None:
            raise _Refused(f"no order {request.order}: it was never armed, or its time is over")
        elif isinstance(request, Renew):
            order.deadline = self._clock() + order.arm.ttl_s
        else:
            del self._orders[request.order]
        self._sort()
        return order.hits

    def _sort(self) -> None:
        """With the lock, after a change: put the orders where the points look, and wake who waits at one."""
        armed: dict[str, list[_Order]] = {}
        for order in self._orders.values():
            armed.setdefault(order.arm.point, []).append(order)
        self._armed = armed
        self._changed.notify_all()

    def _forget_expired(self) -> None:
        """With the lock."""
        now = self._clock()
        over = [name for name, order in self._orders.items() if order.deadline <= now]
        for name in over:
            del self._orders[name]
        if over:
            self._sort()

    def _strike(self, point: Point, step: int, without: Collection[str]) -> Collection[str]:
        """Orders that come while an earlier one holds the trainer at the point are followed too."""
        met: set[str] = set()
        rest: list[str] = []
        while (order := self._next(point, met, without)) is not None:
            arm = order.arm
            met.add(arm.order)
            self._emit(events.FaultPointHit(order=arm.order, point=point, action=arm.action, step=step))
            match arm.action:
                case "pause":
                    self._stay(order, math.inf)
                case "delay":
                    assert arm.delay_s is not None
                    self._stay(order, arm.delay_s)
                case "hold_gil":
                    assert arm.delay_s is not None
                    self._hold_gil(arm.delay_s)
                case "error":
                    raise Ordered(f"ordered to fail {point.replace('_', ' ')}, by {arm.order}")
                case action:
                    rest.append(action)
        return rest

    def _next(self, point: Point, met: set[str], without: Collection[str]) -> _Order | None:
        """The oldest order at the point that this visit has not met, counted as hit."""
        with self._changed:
            self._forget_expired()
            for order in self._armed.get(point, ()):
                if order.arm.order not in met and order.arm.action not in without and order.left():
                    order.hits += 1
                    return order
        return None

    def _stay(self, order: _Order, seconds: float) -> None:
        """Wait that long, but no longer than the order is held."""
        until = self._clock() + seconds
        with self._changed:
            while self._orders.get(order.arm.order) is order:
                left = min(until, order.deadline) - self._clock()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _hold_gil(self, seconds: float) -> None:
        """Nothing written in Python runs meanwhile, nor can a renewal be heard: every order lives on that much longer.

        One call, which only a signal with a handler would end early.
        """
        with self._changed:
            for order in self._orders.values():
                order.deadline += seconds
        _libc_under_gil.usleep(ctypes.c_uint(round(seconds * 1e6)))


def _check(arm: Arm) -> None:
    """Refuse what cannot be followed."""
    if arm.action not in ACTIONS[arm.point]:
        raise _Refused(f"{arm.action} does not go with {arm.point}, which takes {', '.join(ACTIONS[arm.point])}")
    if not TTL_S_MIN < arm.ttl_s <= TTL_S_MAX:
        raise _Refused(f"ttl_s {arm.ttl_s:g} is not above {TTL_S_MIN:g} and at most {TTL_S_MAX:g}")
    if (arm.delay_s is None) == (arm.action in ("delay", "hold_gil")):
        raise _Refused(f"{arm.action} {'needs' if arm.delay_s is None else 'takes no'} delay_s")
    if arm.delay_s is not None and not 0 < arm.delay_s < math.inf:
        raise _Refused(f"delay_s {arm.delay_s:g} is not above 0")
    if arm.action == "hold_gil" and arm.delay_s is not None and arm.delay_s > HOLD_GIL_S_MAX:
        raise _Refused(f"delay_s {arm.delay_s:g} of hold_gil, which nobody can end early, is over {HOLD_GIL_S_MAX:g}")


class Server(socketserver.ThreadingUnixStreamServer):
    """Takes orders for ``points`` at the socket in ``folder``, on daemon threads. Only this user may connect."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, points: FaultPoints, folder: str | Path) -> None:
        self.points = points
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        path = f"/proc/self/fd/{self._folder}/{SOCKET}"  # a socket's own path must be short
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        super().__init__(path, _Connection)
        threading.Thread(target=self.serve_forever, name="fault-points", daemon=True).start()

    def server_bind(self) -> None:
        super().server_bind()
        os.chmod(str(self.server_address), stat.S_IRUSR | stat.S_IWUSR)  # before it listens

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that went away, which is its own affair."""

    def close(self) -> None:
        """Take no more orders. Those that are held run out."""
        self.shutdown()
        self.server_close()
        os.close(self._folder)


class _Connection(socketserver.StreamRequestHandler):
    """One sender: a reply to each of its lines, until it leaves or is silent for long."""

    timeout = IDLE_S_MAX

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        while line := self.rfile.readline(LINE_BYTES_MAX):
            if not line.endswith(b"\n"):
                return
            self.wfile.write(msgspec.json.encode(self.server.points.answer(line)) + b"\n")
