"""What a queue of ours does to packets, and how the kernel's netem and tbf say it.

One value, `Wish`, is worked out from leases, written, and read back; the two are compared. The table of a spread is the
one thing that netem does not tell again.
Layouts: linux/pkt_sched.h.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist

from chaos.agent.linux.netlink import attribute, attributes
from chaos.model.injections import PortShape, Shape, Spread

_PACKETS_MAX = 100_000
_ALWAYS = 0xFFFFFFFF
_OPTIONS = struct.Struct("=IIIIII")
_DELAYS, _REORDER, _CORRUPT, _LOSS, _LATENCY64, _JITTER64 = 2, 3, 4, 5, 10, 11
_BURSTS = 2
_GILBERT = struct.Struct("=IIII")
"""Chances to enter a burst, to leave it, to pass inside of one, to be lost outside."""
_TABLE_LENGTH, _TABLE_SCALE = 4096, 8192
_FAR = 32767 / _TABLE_SCALE
"""In jitters: further from the middle no delay lies."""
_ROUNDS = 8
_PARETO_SHAPE = 3.0

_TBF_PARMS, _TBF_BURST = 1, 6
_TBF = struct.Struct("=BBHhHI12xIII")
_ETHERNET = 1
_BURST_BYTES_MIN = 64 * 1024
_BURST_S = 0.005
_QUEUE_S = 0.05


@dataclass(frozen=True)
class Wish:
    """Rate in bytes/s, delay and jitter in nanoseconds, shares as 32-bit fractions of all packets; 0 for none.

    `bad` and `good` are the chances to enter and to leave a burst of losses.
    """

    rate: int = 0
    delay_ns: int = 0
    jitter_ns: int = 0
    loss: int = 0
    bad: int = 0
    good: int = 0
    duplicate: int = 0
    corrupt: int = 0
    reorder: int = 0
    spread: Spread = Spread.UNIFORM

    @property
    def netem(self) -> bool:
        return bool(self.delay_ns or self.loss or self.bad or self.duplicate or self.corrupt)

    def told(self) -> Wish:
        """As the kernel tells it."""
        return replace(self, spread=Spread.UNIFORM)

    def __str__(self) -> str:
        parts = [f"a rate of {self.rate * 8} bit/s"] if self.rate else []
        parts += [f"a delay of {self.delay_ns / 1e6:g} +- {self.jitter_ns / 1e6:g} ms"] if self.delay_ns else []
        parts += [f"a loss of {_percent(self.loss)} %"] if self.loss else []
        if self.bad:
            share = self.bad / (self.bad + self.good)
            parts.append(f"a loss of {100 * share:.3g} % in bursts of {_ALWAYS / self.good:.3g}")
        shares = {"doubled": self.duplicate, "damaged": self.corrupt, "sent ahead": self.reorder}
        parts += [f"{_percent(share)} % {what}" for what, share in shares.items() if share]
        return " and ".join(parts) or "nothing"


def together(shapes: Iterable[Shape | PortShape]) -> Wish:
    """The worst of each."""
    wishes = list(map(_wish, shapes))
    worst = {name: max(getattr(wish, name) for wish in wishes) for name in _HIGHEST} if wishes else {}
    rates = [wish.rate for wish in wishes if wish.rate]
    bursts = max(wishes, key=lambda wish: wish.bad / (wish.bad + wish.good or 1), default=Wish())
    spread = max(wishes, key=lambda wish: wish.jitter_ns, default=Wish()).spread
    loss = 0 if bursts.bad else worst.pop("loss", 0)
    return Wish(rate=min(rates, default=0), bad=bursts.bad, good=bursts.good, spread=spread, **{**worst, "loss": loss})


_HIGHEST = ("delay_ns", "jitter_ns", "loss", "duplicate", "corrupt", "reorder")


def _wish(shape: Shape | PortShape) -> Wish:
    wish = Wish(
        delay_ns=round((shape.delay_ms or 0) * 1e6),
        jitter_ns=round((shape.jitter_ms or 0) * 1e6),
        loss=_fraction(shape.loss_percent),
    )
    if isinstance(shape, PortShape):
        return wish
    wish = replace(
        wish,
        rate=(shape.rate_bit_s or 0) // 8,
        duplicate=_fraction(shape.duplicate_percent),
        corrupt=_fraction(shape.corrupt_percent),
        reorder=_fraction(shape.reorder_percent),
        spread=shape.spread,
    )
    if shape.loss_burst is None or shape.loss_percent is None:
        return wish
    share, end = shape.loss_percent / 100, 1 / shape.loss_burst
    return replace(wish, loss=0, bad=round(min(1.0, end * share / (1 - share)) * _ALWAYS), good=round(end * _ALWAYS))


def _fraction(percent: float | None) -> int:
    return round((percent or 0) / 100 * _ALWAYS)


def _percent(fraction: int) -> str:
    return f"{100 * fraction / _ALWAYS:.3g}"


def netem_options(wish: Wish) -> bytes:
    ahead = 1 if wish.reorder else 0
    options = _OPTIONS.pack(0, _PACKETS_MAX, wish.loss, ahead, wish.duplicate, 0)
    options += attribute(_LATENCY64, struct.pack("=q", wish.delay_ns))
    options += attribute(_JITTER64, struct.pack("=q", wish.jitter_ns))
    if wish.reorder:
        options += attribute(_REORDER, struct.pack("=II", wish.reorder, 0))
    if wish.corrupt:
        options += attribute(_CORRUPT, struct.pack("=II", wish.corrupt, 0))
    if wish.bad:
        options += attribute(_LOSS, attribute(_BURSTS, _GILBERT.pack(wish.bad, wish.good, 0, 0)))
    if wish.spread is not Spread.UNIFORM:
        options += attribute(_DELAYS, _table(wish.spread))
    return options


def tbf_options(rate: int) -> bytes:
    burst = max(_BURST_BYTES_MIN, int(rate * _BURST_S))
    limit = int(rate * _QUEUE_S) + burst
    parms = attribute(_TBF_PARMS, _TBF.pack(0, _ETHERNET, 0, 0, 0, rate, limit, 0, 0))
    return parms + attribute(_TBF_BURST, struct.pack("=I", burst))


def read(kind: str, options: bytes, found: Wish) -> Wish:
    """`found` with what one more queue does."""
    if kind == "tbf":
        return replace(found, rate=_TBF.unpack_from(attributes(options, 0)[_TBF_PARMS])[5])
    if kind != "netem":
        return found
    _latency, _limit, loss, _gap, duplicate, _jitter = _OPTIONS.unpack_from(options)
    more = attributes(options, _OPTIONS.size)
    delay_ns, jitter_ns = (struct.unpack("=q", more[name])[0] for name in (_LATENCY64, _JITTER64))
    corrupt, reorder = (struct.unpack_from("=I", more.get(name, bytes(4)))[0] for name in (_CORRUPT, _REORDER))
    bad, good, _pass, _lost = _GILBERT.unpack(attributes(more.get(_LOSS, b""), 0).get(_BURSTS, bytes(16)))
    return Wish(found.rate, delay_ns, jitter_ns, loss, bad, good, duplicate, corrupt, reorder)


@functools.cache
def _table(spread: Spread) -> bytes:
    """How far delays lie from their middle, in jitters, at evenly spaced chances; mean 0 and deviation 1."""
    chances = [(n + 0.5) / _TABLE_LENGTH for n in range(_TABLE_LENGTH)]
    if spread is Spread.NORMAL:
        values = list(map(NormalDist().inv_cdf, chances))
    else:
        values = [(1 - chance) ** (-1 / _PARETO_SHAPE) for chance in chances]
    for _round in range(_ROUNDS):  # What the kernel cannot hold is cut, which leaves the rest too narrow at first.
        mean = sum(values) / _TABLE_LENGTH
        deviation = (sum((value - mean) ** 2 for value in values) / _TABLE_LENGTH) ** 0.5
        values = [max(-_FAR, min(_FAR, (value - mean) / deviation)) for value in values]
    return struct.pack(f"={_TABLE_LENGTH}h", *(round(value * _TABLE_SCALE) for value in values))
