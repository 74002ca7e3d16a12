"""What cases are tried on: a pod with namespaces and groups, one with RDMA ports; each made when it is needed first."""

from __future__ import annotations

from contextlib import ExitStack

from tests.agent.pods import Pod, make_pod, wait_for
from tests.agent.rails import make_rails

POD, RAILS = "pod", "rails"
_MAKE = {POD: make_pod, RAILS: make_rails}


class Grounds:
    """By name. What is handed out has got over what was done to it before: a look at it shows what stays."""

    def __init__(self) -> None:
        self._made: dict[str, Pod] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Grounds:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Pod:
        if name not in self._made:
            self._made[name] = self._stack.enter_context(_MAKE[name]())
        pod = self._made[name]
        wait_for("links that the kernel calls usable", pod.usable)
        return pod
