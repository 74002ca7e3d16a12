"""What keeper and host are told: the cluster to bring up (a JSON file of the run), and what the keeper grants to it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chaos.model.topology import Restart


class Member(msgspec.Struct, frozen=True):
    """One member to keep alive, or to start `on_demand` only; `command` still has its placeholders."""

    name: str
    role: str
    node: str
    command: tuple[str, ...]
    on_demand: bool = False


class Spec(msgspec.Struct, frozen=True):
    """A cluster. `python` is the interpreter and `sys_path` the import path of the runner; `keep` are paths that every
    pod sees although they lie below a folder that is private to it.
    """

    isolation: str
    run_dir: str
    python: str
    sys_path: list[str]
    keep: list[str]
    restart: Restart
    env: dict[str, str]
    members: list[Member]

    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.node for member in self.members))

    def scratch(self, member: str) -> Path:
        """The private folder of a member."""
        return Path(self.run_dir, "members", member, "scratch")

    def disk(self, member: str) -> Path:
        """Its part for what is large: checkpoints."""
        return self.scratch(member) / "disk"

    def platform_dir(self) -> Path:
        return Path(self.run_dir) / "platform"


class Grant(msgspec.Struct, frozen=True):
    """What the keeper made and will remove: cgroup tops, the folder and the address block of plain processes."""

    owner: str
    groups: list[str]
    folder: str | None
    block: str | None
