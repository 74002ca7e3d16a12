"""Limits on CPU time, memory, I/O and processes by cgroup, version 1 and version 2.

A limit is one or two files of a group. What they held before is kept as text and written back. Of several leases the
lowest limit counts, and none is ever raised above what was there before.
"""

from __future__ import annotations

import errno
import os
from abc import abstractmethod
from collections.abc import Sequence

from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.agent.wire import Grant
from chaos.model.injections import CpuLimit, IoLimit, MemoryLimit, ProcessLimit

_PAGE_BYTES = 4096
_V1_UNLIMITED = 0x7FFFFFFFFFFFF000
_TRIES = 20
_SLACK = 0.1
"""Processes may have grown since a limit on their memory was worked out: so much more of it may be in use."""


class Limit(Resource):
    """The files `names` of one group."""

    names: tuple[str, ...]

    def __init__(self, group: str) -> None:
        self._group = group
        self.key = f"{type(self).__name__} {group}"

    @abstractmethod
    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        """What the files should hold, in the order to write them; there is at least one lease."""

    @abstractmethod
    def evidence(self) -> str:
        """What the limit is now and what it does, in numbers read back."""

    def before(self) -> State:
        return {name: self.read(name) for name in self.names}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        if not os.path.isdir(self._group):
            raise Gone(f"cgroup {self._group} is gone")
        wanted = self.wanted(leases, before) if leases else before
        for name, text in wanted.items():
            if self.read(name) != text:
                self.write(name, text)
        for name, text in wanted.items():
            if self.read(name) != text:
                raise NotInForce(f"{name} reads {self.read(name)}, not {text}")
        return self.evidence()

    def read(self, name: str) -> str:
        try:
            with open(f"{self._group}/{name}") as file:
                return file.read().strip()
        except FileNotFoundError as error:
            raise NotInForce(self._not_delegated(name)) from error

    def _not_delegated(self, name: str) -> str:
        if not os.path.isdir(self._group):
            return f"there is no cgroup {self._group}"
        controller, parent = name.partition(".")[0], os.path.dirname(self._group)
        remedy = f"as root: echo +{controller} > {parent}/cgroup.subtree_control"
        return f"cgroup {self._group} has no {name}: the controller {controller} is not delegated to it; {remedy}"

    def write(self, name: str, text: str) -> None:
        try:
            with open(f"{self._group}/{name}", "w") as file:
                file.write(text)
        except OSError as error:
            why = "the kernel cannot take back enough for that" if error.errno == errno.EBUSY else error.strerror
            raise NotInForce(f"{name} of {self._group} cannot be {text}: {why}") from error

    def number(self, name: str, field: str) -> int:
        """A value of a file of `field value` lines."""
        fields = dict(line.split(maxsplit=1) for line in self.read(name).splitlines())
        return int(fields.get(field, 0))


class Pids(Limit):
    """The same file in both versions."""

    names = ("pids.max",)

    def narrow(self, grant: Grant) -> Grant:
        wish = grant.injection
        assert isinstance(wish, ProcessLimit)
        narrowed = ProcessLimit(wish.target, wish.more, int(self.read("pids.current")) + wish.more)
        return Grant(grant.lease, grant.ttl_s, narrowed, grant.site, grant.peers)

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        wishes = [lease.grant.injection for lease in leases]
        limits = [wish.most or 0 for wish in wishes if isinstance(wish, ProcessLimit)]
        return {"pids.max": str(min([*limits, *(int(old) for old in before.values() if old != "max")]))}

    def evidence(self) -> str:
        return f"pids.max {self.read('pids.max')}, {self.read('pids.current')} processes and threads now"


def _cores(leases: Sequence[Lease]) -> float:
    return min(lease.grant.injection.cores for lease in leases if isinstance(lease.grant.injection, CpuLimit))


class CpuV1(Limit):
    names = ("cpu.cfs_quota_us",)

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        quota = round(_cores(leases) * int(self.read("cpu.cfs_period_us")))
        old = int(before["cpu.cfs_quota_us"])
        return {"cpu.cfs_quota_us": str(quota if old < 0 else min(quota, old))}

    def evidence(self) -> str:
        quota, period = int(self.read("cpu.cfs_quota_us")), int(self.read("cpu.cfs_period_us"))
        cores = "no quota" if quota < 0 else f"a quota of {quota / period:g} cores"
        return f"{cores}, throttled {self.number('cpu.stat', 'nr_throttled')} times so far"


class CpuV2(Limit):
    names = ("cpu.max",)

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        old, period = before["cpu.max"].split()
        quota = round(_cores(leases) * int(period))
        return {"cpu.max": f"{quota if old == 'max' else min(quota, int(old))} {period}"}

    def evidence(self) -> str:
        quota, period = self.read("cpu.max").split()
        cores = "no quota" if quota == "max" else f"a quota of {int(quota) / int(period):g} cores"
        return f"{cores}, throttled {self.number('cpu.stat', 'nr_throttled')} times so far"


class Memory(Limit):
    """What both versions share: shares become bytes, a limit without a kill must be one the kernel can reach."""

    used: str

    def narrow(self, grant: Grant) -> Grant:
        wish = grant.injection
        assert isinstance(wish, MemoryLimit)
        limit = wish.limit_bytes or int((wish.share_of_used or 1.0) * int(self.read(self.used)))
        whole_pages = max(limit // _PAGE_BYTES, 1) * _PAGE_BYTES
        narrowed = MemoryLimit(wish.target, limit_bytes=max(whole_pages, 1 << 20), kill=wish.kill)
        return Grant(grant.lease, grant.ttl_s, narrowed, grant.site, grant.peers)

    def limits(self, leases: Sequence[Lease], kill: bool) -> list[int]:
        wishes = [lease.grant.injection for lease in leases]
        return [w.limit_bytes or 0 for w in wishes if isinstance(w, MemoryLimit) and w.kill is kill]


class MemoryV1(Memory):
    """One limit. Without a kill, processes that need more wait until it is gone (oom_control)."""

    names = ("memory.limit_in_bytes", "memory.oom_control")
    used = "memory.usage_in_bytes"

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        killing, sparing = self.limits(leases, kill=True), self.limits(leases, kill=False)
        lowest = min(*killing, *sparing, int(before["memory.limit_in_bytes"]))
        spare = before["memory.oom_control"] if killing else "1"
        highest = _V1_UNLIMITED if killing else int(lowest * (1 + _SLACK))
        return {"memory.oom_control": spare, "memory.limit_in_bytes": str(self._reach(lowest, highest))}

    def _reach(self, limit: int, highest: int) -> int:
        """`limit`, or as near to it as the kernel can get: it refuses to go below what it cannot take back.

        What is in use is the limit then, so that the next page that is needed is one too many. NotInForce when it would
        have to be above `highest`.
        """
        for _try in range(_TRIES):
            try:
                super().write("memory.limit_in_bytes", str(limit))
                return limit
            except NotInForce as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EBUSY:
                    raise
                limit = int(self.read(self.used)) + _PAGE_BYTES
                if limit > highest:
                    raise
        raise NotInForce(f"the kernel took back nothing of {limit} bytes in {_TRIES} tries")

    def read(self, name: str) -> str:
        text = super().read(name)
        return dict(line.split() for line in text.splitlines())["oom_kill_disable"] if name == self.names[1] else text

    def evidence(self) -> str:
        limit, used, failed = (int(self.read(f"memory.{n}")) for n in ("limit_in_bytes", "usage_in_bytes", "failcnt"))
        said = "no limit" if limit >= _V1_UNLIMITED else f"a limit of {limit} bytes"
        return f"{said}, {used} in use, hit {failed} times so far"


class MemoryV2(Memory):
    """memory.max kills; memory.high holds up."""

    names = ("memory.max", "memory.high")
    used = "memory.current"

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        state = {}
        for name, kill in (("memory.max", True), ("memory.high", False)):
            limits = [*self.limits(leases, kill), *(int(old) for old in [before[name]] if old != "max")]
            state[name] = str(min(limits)) if limits else "max"
        return state

    def write(self, name: str, text: str) -> None:
        """Unlike version 1, the kernel sets memory.high whether or not it can take back enough."""
        lowered = text != "max" and int(text) < float(self.read(name).replace("max", "inf"))
        super().write(name, text)
        if name == "memory.high" and lowered and int(self.read(self.used)) > int(text) * (1 + _SLACK):
            raise NotInForce(f"{name} of {self._group} cannot be {text}: the kernel cannot take back enough for that")

    def evidence(self) -> str:
        limits = f"memory.max {self.read('memory.max')}, memory.high {self.read('memory.high')}"
        kills, holds = self.number("memory.events", "oom_kill"), self.number("memory.events", "high")
        return f"{limits}, {self.read(self.used)} bytes in use, {kills} kills and {holds} hold-ups so far"


def _bytes_s(leases: Sequence[Lease], old: str) -> int:
    """The lowest rate that anyone wants; `old` is a number or says that there was no limit."""
    wishes = [lease.grant.injection.bytes_s for lease in leases if isinstance(lease.grant.injection, IoLimit)]
    return min(*wishes, int(old)) if old.isdigit() and int(old) else min(wishes)


class Io(Limit):
    """Reads and writes on one device; which one is part of what was before."""

    device = ""

    def __init__(self, group: str, folder: str) -> None:
        super().__init__(group)
        self._folder = folder

    def before(self) -> State:
        self.device = disk_of(self._folder)
        return {"device": self.device, **super().before()}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        self.device = before["device"]
        return super().settle(leases, {name: before[name] for name in self.names})

    def wanted(self, leases: Sequence[Lease], before: State) -> State:
        return {name: str(_bytes_s(leases, before[name])) for name in self.names}

    def evidence(self) -> str:
        read, written = (self.read(name) for name in self.names)
        return f"device {self.device}: read {read} and write {written} bytes/s"


class IoV1(Io):
    """A file has one line per device; writing "0" takes the line away."""

    names = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")

    def read(self, name: str) -> str:
        return dict(line.split() for line in super().read(name).splitlines()).get(self.device, "0")

    def write(self, name: str, text: str) -> None:
        super().write(name, f"{self.device} {text}")


class IoV2(Io):
    """One file, with fields by these names; "max" is no limit."""

    names = ("rbps", "wbps")

    def read(self, name: str) -> str:
        lines = dict(line.split(maxsplit=1) for line in super().read("io.max").splitlines())
        fields = dict(field.split("=") for field in lines.get(self.device, "").split())
        return fields.get(name, "max")

    def write(self, name: str, text: str) -> None:
        super().write("io.max", f"{self.device} {name}={text}")


def disk_of(folder: str) -> str:
    """`major:minor` of the whole disk below `folder`: partitions cannot be limited."""
    try:
        number = os.stat(folder).st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        path = os.path.realpath(f"/sys/dev/block/{name}", strict=True)
        if os.path.exists(f"{path}/partition"):
            with open(f"{os.path.dirname(path)}/dev") as file:
                name = file.read().strip()
    except FileNotFoundError as error:
        raise NotInForce(f"{folder} is on no disk that could be slowed") from error
    return name
