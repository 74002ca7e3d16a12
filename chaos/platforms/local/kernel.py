"""The few Linux calls that Python 3.11 does not have: namespaces, mounts, prctl.

Every call raises OSError with the kernel's errno and what was tried. Standard library only, so that the small programs
(keeper, enter, probe) start fast. It decides nothing; who calls it does.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25  # On Linux everywhere but MIPS; the signal module takes long to import.

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.unshare.argtypes = [ctypes.c_int]
_libc.setns.argtypes = [ctypes.c_int, ctypes.c_int]
_libc.sethostname.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]


def _check(result: int, tried: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{tried}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` (CLONE_NEW...) for new ones."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """Join the namespace of kind `kind` (CLONE_NEW...) that `fd` is open on."""
    _check(_libc.setns(fd, kind), f"setns({kind:#x})")


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2); `kind` is the file system's name, empty for bind mounts and changes of propagation."""
    result = _libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)
    _check(result, f"mount {kind or 'bind'} on {target}")


def mounts_private() -> None:
    """Keep this mount namespace's mounts from showing in any other."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def mount_proc() -> None:
    """Show this pid namespace in /proc."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def bind(source: str, target: str) -> None:
    mount(source, target, "", MS_BIND | MS_REC)


def umount(target: str) -> None:
    """Detach the topmost mount at `target`."""
    _check(_libc.umount2(target.encode(), 2), f"umount {target}")


def sethostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), f"sethostname({name})")


def die_with_parent() -> None:
    """Get SIGKILL when the thread that started this process ends. Survives exec, not a change of user."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def default_signals() -> None:
    """Give back the default action to the signals that Python ignores, for the program to exec."""
    for number in (_SIGPIPE, _SIGXFSZ):
        _libc.signal(number, None)


def become_root_in_user_namespace() -> None:
    """Enter a new user namespace in which this user is root. Needs a single-threaded process."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
