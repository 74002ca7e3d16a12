"""What a run could leave on this machine, as the kernel tells it."""

from __future__ import annotations

import os
import re
import select
import tempfile
import time
from pathlib import Path

GONE_S_MAX = 15.0
_OWNED = re.compile(r"torchchaos-\d+-(\d+)-\d+")

State = dict[str, set[str]]


def state(folder: Path) -> State:
    """Everything of runs below `folder`, and what is named after runs that are over."""
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    groups = os.walk("/sys/fs/cgroup") if os.geteuid() == 0 else []
    cgroups = {f"{path}/{name}" for path, names, _files in groups for name in names if _orphaned(name)}
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return {
        "links": {link for link in os.listdir("/sys/class/net") if link.startswith(("control", "data"))},
        "mounts": {mount for mount in mounts if mount.startswith(str(folder))},
        "loop devices": {path.parts[3] for path in backing if str(folder) in path.read_text()},
        "cgroups": cgroups,
        "temporary files": {name for name in os.listdir(tempfile.gettempdir()) if _orphaned(name)},
    }


def _orphaned(name: str) -> bool:
    """Whether it is named after a keeper that is gone; other runs may go on meanwhile."""
    named = _OWNED.match(name)
    return named is not None and not os.path.exists(f"/proc/{named[1]}")


def left(folder: Path, before: State, marker: str) -> list[str]:
    """What is there that was not before, once every process of the run has ended; both have GONE_S_MAX for it."""
    deadline_s = time.monotonic() + GONE_S_MAX
    while alive := processes_of(marker):
        if not _ends(alive[0], deadline_s):
            return [f"process {Path(f'/proc/{alive[0]}/cmdline').read_bytes()!r}"]
    while found := [f"{kind}: {name}" for kind, names in state(folder).items() for name in names - before[kind]]:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.01)  # A loop device ends a moment after its last mount.
    return found


def processes_of(marker: str) -> list[int]:
    """Processes whose environment or command line holds the marker."""
    found = []
    for pid in pids():
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(pid)
    return found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def _ends(pid: int, deadline_s: float) -> bool:
    """Whether the process has ended by then."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], max(0.0, deadline_s - time.monotonic()))[0])
    finally:
        os.close(pidfd)
