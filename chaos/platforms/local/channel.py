"""Messages between runner and host: one JSON object per packet, with an open file riding along where one is needed.

A pair of connected sequential-packet sockets keeps packets whole and in order. Files cross pid namespaces where numbers
do not: a pod's pidfd sent here names the same process on both sides. It neither waits nor retries; both ends poll.
"""

from __future__ import annotations

import json
import socket
from typing import Any

PACKET_BYTES_MAX = 64 * 1024
SEND_BUFFER_BYTES = 1024 * 1024

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends, both non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return ends


def send(end: socket.socket, message: Message, fd: int | None = None) -> None:
    """BlockingIOError when the other end has stopped reading, BrokenPipeError when it is gone."""
    raw = json.dumps(message).encode()
    assert len(raw) <= PACKET_BYTES_MAX, message
    socket.send_fds(end, [raw], [] if fd is None else [fd], socket.MSG_NOSIGNAL)


def receive(end: socket.socket) -> tuple[Message, int | None] | None:
    """The next message; None when the other end is gone. BlockingIOError when there is none yet."""
    try:
        raw, fds, _flags, _address = socket.recv_fds(end, PACKET_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not raw:
        return None
    return json.loads(raw), fds[0] if fds else None
