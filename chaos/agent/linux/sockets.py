"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")


def peer(end: socket.socket) -> tuple[int, int]:
    """Pid and user id of who connected or listens there, as the kernel tells them: unix(7), SO_PEERCRED.

    The pid is 0 for a process that cannot be seen from here.
    """
    pid, uid, _gid = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid
