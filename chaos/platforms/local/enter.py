"""Set one pod up from inside, then become the member's command.

    python -I -S enter.py POD      (POD: a dict from `pods`, marshalled, in hex)

Started by the host as the pod's first process. In namespaces it is pid 1 of the pod's pid namespace; it joins the pod's
network and cgroups, takes its own mount, host-name and IPC namespaces, and hides the machine's /tmp, /run and /dev/shm
behind private ones, save for the paths the pod needs. A failure is written to the status pipe; the pipe closing without
a word means that the command runs. It starts no second process.

Every pod waits for this, so it imports little: marshal, because json, enum and typing take longer than all the rest.
"""

from __future__ import annotations

import marshal
import os
import sys

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from chaos.platforms.local import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PRIVATE = {"/tmp": "mode=1777", "/run": "mode=755", "/dev/shm": "mode=1777"}
NO_SUCH_COMMAND = 127


def main() -> None:
    pod = marshal.loads(bytes.fromhex(sys.argv[1]))
    os.set_inheritable(pod["status"], False)
    try:
        if pod["net"] is None:
            be_plain(pod["parent"])
        else:
            be_separate(pod)
        os.chdir(pod["folder"])
        kernel.default_signals()
    except OSError as error:
        os.write(pod["status"], str(error).encode())
        sys.exit(1)
    try:
        os.execvp(pod["command"][0], pod["command"])
    except OSError as error:
        print(f"{pod['command'][0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_SUCH_COMMAND)


def be_plain(parent: int) -> None:
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def be_separate(pod: dict[str, Any]) -> None:
    for group in pod["groups"]:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write("0")
    kernel.setns(pod["net"], kernel.CLONE_NEWNET)
    os.close(pod["net"])
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    kernel.sethostname(pod["member"])
    kernel.mount_proc()
    sources = {target: os.open(source, os.O_PATH) for target, source in pod["files"].items()}
    kept = {path: os.open(path, os.O_PATH) for path in pod["keep"] if os.path.exists(path)}
    show_own_interfaces()
    for path, options in PRIVATE.items():
        if os.path.isdir(path):
            kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for path, fd in kept.items():
        show(path, fd)
    for path, fd in sources.items():
        replace(path, fd)


def show_own_interfaces() -> None:
    """A /sys of the pod's own network namespace, with the cgroups where they were. Kept as it was if refused."""
    groups = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else None
    try:
        kernel.mount("sysfs", "/sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    except PermissionError:
        return
    if groups is not None:
        kernel.bind(f"/proc/self/fd/{groups}", "/sys/fs/cgroup")
        os.close(groups)


def show(path: str, fd: int) -> None:
    """Make what `fd` was opened on visible at `path` again, after a private folder was put over it."""
    source = f"/proc/self/fd/{fd}"
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    else:
        touch(path)
    kernel.bind(source, path)
    os.close(fd)


def replace(path: str, fd: int) -> None:
    """Put the file that `fd` was opened on over `path`, through a link if it is one; /etc itself is not written to."""
    target = os.path.realpath(path)
    if not os.path.exists(target):
        if not target.startswith(tuple(f"{private}/" for private in PRIVATE)):
            os.close(fd)
            return
        touch(target)
    kernel.bind(f"/proc/self/fd/{fd}", target)
    os.close(fd)


def touch(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab"):
        pass


if __name__ == "__main__":
    main()
