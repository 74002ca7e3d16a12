"""Entering a network namespace for a moment, in the calling thread only. Nothing is held open in between.

Netlink sockets and child processes made inside belong to the namespace.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from chaos.agent.linux.resource import Gone
from chaos.model.site import Namespace

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: Namespace) -> Iterator[None]:
    """Gone when the path leads nowhere, or to another namespace than it did."""
    try:
        there = os.open(namespace.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Gone(f"network namespace {namespace.inode} is gone ({namespace.path}: {error.strerror})") from error
    try:
        found = os.fstat(there).st_ino
        if found != namespace.inode:
            raise Gone(f"network namespace {namespace.inode} is gone ({namespace.path} is {found} now)")
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _libc.setns(there, _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, f"entering {namespace.path}: {os.strerror(number)}")
            try:
                yield
            finally:
                if _libc.setns(home, _CLONE_NEWNET) != 0:
                    os.abort()  # A thread that is lost in a target's namespace must not serve anyone.
        finally:
            os.close(home)
    finally:
        os.close(there)
