"""Pods of a node are found by their cgroups, as systemd, cgroupfs and a kubelet inside a container name them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chaos.agent.wire import State
from chaos.model.injections import CpuLimit, Freeze, KernelInjection, MemoryLimit
from chaos.platforms.kubernetes.agent.pods import NodePods
from chaos.platforms.kubernetes.order import Target
from tests.agent.cases import MIB, TARGET
from tests.agent.pods import WAIT_S, Agent, wait_for

ROOT = Path("/sys/fs/cgroup")
OWN, POD = "0b6a1f7e-52a4-4c34-9d8f-5f0f8f1d7a10", "7c1d5a90-e2c1-4f0b-8a55-1f6f0f3d2b21"
LAYOUTS = {
    "systemd": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice",
    "systemd in a container": (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{slice}.slice"
    ),
    "cgroupfs": "kubepods/burstable/pod{uid}",
    "guaranteed": "kubepods.slice/kubepods-pod{slice}.slice",
}


@contextmanager
def placed(pid: int, pod: str) -> Iterator[None]:
    """A process in the group of a container in a pod, all of which are gone afterwards."""
    container = ROOT / pod / "cri-containerd-1.scope"
    with ExitStack() as stack:
        for group in [*reversed(container.relative_to(ROOT).parents), container.relative_to(ROOT)][1:]:
            if not (ROOT / group).exists():
                (ROOT / group).mkdir()
                stack.callback((ROOT / group).rmdir)
            if ROOT / group != container:
                (ROOT / group / "cgroup.subtree_control").write_text("+cpu +memory")
        (container / "cgroup.procs").write_text(str(pid))
        stack.callback(_leave, pid, container)
        yield


def _leave(pid: int, container: Path) -> None:
    if Path(f"/proc/{pid}").exists():
        (ROOT / "cgroup.procs").write_text(str(pid))
    wait_for(f"{container} is empty", lambda: not (container / "cgroup.procs").read_text())


@pytest.mark.kernel
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_is_found_and_limited_by_its_group(agent: Agent, layout: str) -> None:
    if not (ROOT / "cgroup.controllers").exists():
        pytest.skip("needs version 2 cgroups")
    own, pod = (LAYOUTS[layout].format(uid=uid, slice=uid.replace("-", "_")) for uid in (OWN, POD))
    process = subprocess.Popen(["sleep", "infinity"], stdin=subprocess.DEVNULL)
    injections: tuple[KernelInjection, ...] = (
        CpuLimit(TARGET, 0.5),
        MemoryLimit(TARGET, limit_bytes=64 * MIB),
        Freeze(TARGET),
    )
    try:
        with placed(os.getpid(), own), placed(process.pid, pod):
            pods = NodePods()
            assert dict(pods.running()) == {OWN: os.getpid(), POD: process.pid}
            target = Target(TARGET, {}, pod="a-pod", uid=POD, pid=process.pid)
            for injection in injections:
                site = pods.site(target, injection)
                assert (site.unified, site.groups) == (str(ROOT / pod), {})
                assert agent.grant(site, injection)
                assert agent.release().state is State.RELEASED
    finally:
        process.kill()
        process.wait(WAIT_S)
