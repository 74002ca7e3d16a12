"""What goes over the agent's socket: one JSON object per line, one reply line per request line, in order.

{"do": "grant", "lease": "f1.replica-0", "ttl_s": 3, "injection": {"type": "freeze", ...}, "site": {...}, "peers": {}}
{"do": "renew", "lease": "f1.replica-0"}
{"do": "release", "lease": "f1.replica-0"}
{"do": "status"}

{"ok": true, "state": "held", "evidence": "eth0 of replica-0 has no carrier ..."}
{"ok": false, "error": "why not, in one line"}
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from chaos.model.injections import KernelInjection, PortShape, Shape
from chaos.model.site import Site

LINE_BYTES_MAX = 64 * 1024
TTL_S_MIN = 0.5
TTL_S_MAX = 15.0

LeaseId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Grant(msgspec.Struct, frozen=True, tag="grant", tag_field="do"):
    """Make `injection` at `site` and hold it for `ttl_s` seconds, and as long again from each renewal.

    `peers` are the addresses (or CIDR blocks) behind the names in a Drop's `peers`.
    """

    lease: LeaseId
    ttl_s: Annotated[float, Meta(ge=TTL_S_MIN, le=TTL_S_MAX)]
    injection: KernelInjection
    site: Site
    peers: dict[str, tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        delay_ms = self.injection.delay_ms if isinstance(self.injection, Shape | PortShape) else None
        if (delay_ms or 0) > self.ttl_s * 1000:
            raise ValueError(f"delay_ms {delay_ms:g} is longer than the lease of {self.ttl_s:g} s that holds it")


class Renew(msgspec.Struct, frozen=True, tag="renew", tag_field="do"):
    """Hold on for another ttl; the kernel state is set and read back again, with these `peers` where some are given."""

    lease: LeaseId
    peers: dict[str, tuple[str, ...]] = {}


class Release(msgspec.Struct, frozen=True, tag="release", tag_field="do"):
    """Give back now. Of a lease that has ended, the reply says how."""

    lease: LeaseId


class Status(msgspec.Struct, frozen=True, tag="status", tag_field="do"):
    """What is held, and what could not be given back yet."""


Request = Grant | Renew | Release | Status


class State(enum.Enum):
    """Of a lease. STUCK: it ended, but its revert is not proven yet; the agent goes on trying."""

    HELD = "held"
    RELEASED = "released"
    EXPIRED = "expired"
    GONE = "gone"
    """The target is no more, and what was done to it went with it."""
    SWEPT = "swept"
    """An earlier agent died; this one gave back what that one held."""
    STUCK = "stuck"


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """`evidence` is what was read back: in force for HELD, reverted for the others."""

    ok: bool
    state: State | None = None
    evidence: str = ""
    error: str = ""
    leases: dict[str, State] = {}
    """The answer to Status."""
