"""One try at what a cluster needs, in a process of its own that leaves nothing.

    python -I -S probe.py namespaces | user-namespaces | links SYS_PATH_JSON

Prints nothing and exits 0 when it works; else prints the reason and exits 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from chaos.platforms.local import kernel


def namespaces() -> None:
    """All that host and pods do to be apart: new namespaces, /proc and tmpfs mounts, a pod's namespaces within."""
    kernel.unshare(kernel.CLONE_NEWPID)
    _in_child(_as_host)


def user_namespaces() -> None:
    kernel.become_root_in_user_namespace()
    namespaces()


def _as_host() -> None:
    _separate()
    kernel.unshare(kernel.CLONE_NEWPID)
    _in_child(_separate)


def _separate() -> None:
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    kernel.mounts_private()
    kernel.mount_proc()
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)


def _in_child(what: Callable[[], None]) -> None:
    """Run `what` in a child, pid 1 of the new pid namespace; its failure ends this process too."""
    pid = os.fork()
    if pid == 0:
        kernel.die_with_parent()
        _exit_with(what)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        os._exit(status)


def links() -> None:
    """A bridge and a linked pair, as nodes have them; then, whether the kernel can delay and lose packets (netem)."""
    sys.path[:] = json.loads(sys.argv[2])
    kernel.unshare(kernel.CLONE_NEWNET)
    from pyroute2 import IPRoute

    with IPRoute() as route:
        route.link("add", ifname="bridge", kind="bridge", state="up")
        (bridge,) = route.link_lookup(ifname="bridge")
        route.link("add", ifname="one", kind="veth", master=bridge, state="up", peer={"ifname": "other"})
        (one,) = route.link_lookup(ifname="one")
        try:
            route.tc("add", kind="netem", index=one, delay=1000)
        except Exception as error:
            print(f"netem: {error}")


def _exit_with(what: Callable[[], None]) -> None:
    try:
        what()
    except Exception as error:
        print(error)
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    match sys.argv[1]:
        case "namespaces":
            _exit_with(namespaces)
        case "user-namespaces":
            _exit_with(user_namespaces)
        case "links":
            if os.geteuid() != 0:
                kernel.become_root_in_user_namespace()
            _exit_with(links)
        case other:
            sys.exit(f"unknown probe {other}")


if __name__ == "__main__":
    main()
