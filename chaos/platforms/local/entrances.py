"""The file `platform/enter.txt` of a run: for each pod and node, the line that runs a command inside it.

    $ cat runs/last/platform/enter.txt
    node-0     nsenter --target 4700 --net=/proc/4700/fd/9
    replica-0  nsenter --target 4711 --mount --net --pid --uts --ipc

Append a command, such as `ip addr` or `ss -tn`; none gives a shell. Nothing here enters anything.
"""

from __future__ import annotations

from pathlib import Path

from chaos.files import write_whole

NAME = "enter.txt"
_ORDINARY_USER = "--user --preserve-credentials"


class Entrances:
    """Keeps the file true for the pods that live."""

    def __init__(self, folder: Path, isolation: str) -> None:
        self._path = folder / NAME
        self._isolation = isolation
        self._lines: dict[str, str] = {}

    def pod(self, member: str, pid: int) -> None:
        self._put(member, f"nsenter --target {pid} --mount --net --pid --uts --ipc")

    def node(self, name: str, host: int, fd: int) -> None:
        """A node has no process: its network namespace is a file that the host holds open."""
        self._put(name, f"nsenter --target {host} --net=/proc/{host}/fd/{fd}")

    def gone(self, member: str) -> None:
        self._lines.pop(member, None)
        self._write()

    def _put(self, name: str, line: str) -> None:
        user = f" {_ORDINARY_USER}" if self._isolation == "user-namespaces" else ""
        self._lines[name] = line + user
        self._write()

    def _write(self) -> None:
        if self._isolation == "processes":
            return
        width = max(map(len, self._lines), default=0)
        lines = (f"{name:<{width}}  {line}\n" for name, line in sorted(self._lines.items()))
        write_whole(self._path, "".join(lines).encode())
