"""The few things about processes that Linux offers and Python does not: no process of a job may outlive its parent.

Not here: starting and restarting members (``launch``).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that ask a process to end."""

LINK_LOOK_S = 0.1

_SIOCGIFFLAGS, _IFF_UP_RUNNING, _SIOCGIFADDR = 0x8913, 0x41, 0x8915
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """SIGKILL this process when the thread that started it ends. Survives exec; call it in the child, before exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, so that they can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def when_parent_ends(act: Callable[[], None]) -> None:
    """Call ``act`` on a thread of its own once the present parent process has ended. Needs Linux 5.3."""
    parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        poll = select.poll()
        poll.register(parent, select.POLLIN)
        poll.poll()
        act()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def when_link_is_lost(interface: str, loss_s: float, act: Callable[[], None]) -> None:
    """Call ``act`` on a thread of its own once a network interface was without its link for ``loss_s``."""

    def watch() -> None:
        lost_s = 0.0
        while lost_s < loss_s:
            time.sleep(LINK_LOOK_S)
            lost_s = 0.0 if has_link(interface) else lost_s + LINK_LOOK_S
        act()

    threading.Thread(target=watch, name="link-watch", daemon=True).start()


def has_link(interface: str) -> bool:
    """Whether an interface is up and its other end too. One that is not known here has nothing to lose."""
    if (answer := _ask_kernel(_SIOCGIFFLAGS, interface)) is None:
        return True
    (flags,) = struct.unpack_from("16xH", answer)
    return bool(flags & _IFF_UP_RUNNING == _IFF_UP_RUNNING)


def address_of(interface: str) -> str | None:
    """The IPv4 address of a network interface; None when it has none, or is not known here."""
    answer = _ask_kernel(_SIOCGIFADDR, interface)
    return None if answer is None else socket.inet_ntoa(answer[20:24])


def _ask_kernel(what: int, interface: str) -> bytes | None:
    """A `struct ifreq` with the answer; None when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:  # of this network namespace; /sys may be another's
        try:
            return fcntl.ioctl(asked, what, struct.pack("16s24x", interface.encode()))
        except OSError:
            return None


def wait_for_link(interface: str) -> None:
    """Until it has its link."""
    while not has_link(interface):
        time.sleep(LINK_LOOK_S)


def kill_self() -> None:
    """End now, without any clean-up that could hang."""
    os.kill(os.getpid(), signal.SIGKILL)


def free_port(address: str) -> int:
    """A port of ``address`` that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Process ids of the children of ``pid``; none when it is gone."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                found += [int(child) for child in listed.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
