"""The lives of a cluster's members, as their pods tell of them.

A pod numbers its lives by its own clock (`entry`); here they become 1, 2, 3 for each member, in the order in which they
were first heard of, in events as well. Times become the run's: a life's first line pairs its node's clocks, so that
time within a life is exact; between nodes it is as good as their wall clocks, held to what cannot be otherwise: nothing
happens before its pod was there or after we have heard of it. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from chaos.model.events import Event, MemberStarted
from chaos.model.ports import InjectionRefused
from chaos.platforms.lines import Lines


class Entered(msgspec.Struct, frozen=True, tag="member_entered", tag_field="kind"):
    """The first line of a life, see `entry`. `pid` counts in the pod's own pid namespace."""

    mono_s: float
    wall_s: float
    member: str
    incarnation: int
    pid: int
    address: str
    addresses: dict[str, str]


@dataclass
class Life:
    """One life of a member. `trainer` is the pid of its trainer in the pod, once that told it."""

    member: str
    incarnation: int
    entered: Entered
    pod: str
    uid: str
    node: str
    """The Kubernetes node."""
    lines: Lines
    trainer: int | None = None
    exited: anyio.Event = field(default_factory=anyio.Event)


class Lives(dict[str, Life]):
    """Member -> the life it has now. `epoch_wall_s` is the wall clock's reading where the run's clock is zero."""

    def __init__(self, members: dict[str, str], epoch_wall_s: float) -> None:
        super().__init__()
        self._members = members
        self._epoch_wall_s = epoch_wall_s
        self._numbers: dict[tuple[str, int], int] = {}

    def alive(self, member: str) -> Life:
        """InjectionRefused when the member is not alive."""
        if member not in self._members:
            raise InjectionRefused(f"there is no member {member}")
        if member not in self:
            raise InjectionRefused(f"{member} is not alive")
        return self[member]

    def begin(
        self, entered: Entered, pod: str, uid: str, node: str, plan_node: str, since_s: float, now_s: float
    ) -> tuple[Life, MemberStarted]:
        """A life began on a pod that was first seen at `since_s`, and it is `now_s`."""
        t_s = min(max(entered.wall_s - self._epoch_wall_s, since_s), now_s)
        lines = Lines(entered.member, entered.incarnation, entered.mono_s - t_s)
        number = self.number(entered.member, entered.incarnation)
        life = self[entered.member] = Life(entered.member, number, entered, pod, uid, node, lines)
        started = MemberStarted(
            t_s=t_s,
            member=life.member,
            incarnation=number,
            node=plan_node,
            address=entered.address,
            pid=entered.pid,
        )
        return life, started

    def number(self, member: str, raw: int) -> int:
        """Which life of its member this is."""
        if (member, raw) not in self._numbers:
            self._numbers[member, raw] = 1 + sum(name == member for name, _raw in self._numbers)
        return self._numbers[member, raw]

    def numbered(self, event: Event) -> Event:
        """The event with lives as they count here."""
        changes: dict[str, Any] = {"incarnation": self.number(event.member, event.incarnation)}
        if "member_incarnation" in event.__struct_fields__:
            named = event
            changes["member_incarnation"] = self.number(named.name, named.member_incarnation)  # type: ignore[attr-defined]
        return msgspec.structs.replace(event, **changes)

    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses of the living members on all networks but the loopback, by name."""
        return {
            life.member: tuple(address for name, address in life.entered.addresses.items() if name != "lo")
            for life in self.values()
        }
