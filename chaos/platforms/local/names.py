"""Take names of other members away from one pod, or give them back, and look one up to prove it.

    python -I -S names.py PID lost|back NAME...

Joins the mount namespace of process PID, the pod's main one, and puts a file without the NAMEs over its hosts file, or
takes that away again. The first of them then must not, or must, resolve. Exit status 0 when it is so; else one line
says why not. Started by the host.
"""

from __future__ import annotations

import os
import socket
import sys

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from chaos.platforms.local import kernel

HOSTS = "/etc/hosts"
SHADOW = "/run/hosts"
"""In a folder of the pod's own."""


def main() -> int:
    pid, wanted, names = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    name = names[0]
    fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    kernel.setns(fd, kernel.CLONE_NEWNS)
    if wanted == "lost" and resolves(name):
        write_without(frozenset(names))
        kernel.bind(SHADOW, os.path.realpath(HOSTS))
    elif wanted == "back" and not resolves(name):
        kernel.umount(os.path.realpath(HOSTS))
    if resolves(name) is (wanted == "back"):
        return 0
    print(f"{name} {'still resolves' if wanted == 'lost' else 'does not resolve again'}")
    return 1


def write_without(names: frozenset[str]) -> None:
    """Write what is left of the hosts file to `SHADOW`."""
    with open(HOSTS) as whole, open(SHADOW, "w") as shadow:
        shadow.writelines(line for line in whole if names.isdisjoint(line.split()[1:]))


def resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return False
    return True


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as failure:
        print(failure)
        sys.exit(1)
