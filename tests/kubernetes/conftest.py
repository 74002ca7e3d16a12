"""A cluster for these tests, and `chaos` on it.

TORCHCHAOS_KUBE names a folder with a program `kube` that brings a cluster of three nodes `up`, prints its environment
and takes it `down`; pods there see this machine's /usr, interpreter and checkout. Or set KUBECONFIG for a cluster of
your own, and TORCHCHAOS_PLATFORM_FILE for its platform file. Without either these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from chaos.model.verdict import Verdict
from chaos.platforms.kubernetes.objects import RUN, Names
from chaos.platforms.kubernetes.preflight import AGENT, CAPABILITIES, SYSTEM
from chaos.platforms.local import cgroups
from tests.conftest import CHAOS, JOBS

KUBE = os.environ.get("TORCHCHAOS_KUBE", "")
FILE = os.environ.get("TORCHCHAOS_PLATFORM_FILE", "")
MESHES = "monarchmeshes.monarch.pytorch.org"
UP_S = 300.0
LEDGERS = Path("/run/torchchaos/agent")
"""Where the manifests have them: in a node's memory, and /run of a container is not."""
RUN_S_MAX = 240.0
_TOY = ("program=toyjob", "recipe=toy", "steps=100000", "settings.step_s=0.1")
"""Steps are slow, since every line of a log comes by way of kubelet and API server."""
TOY = tuple(word for setting in _TOY for word in ("--set", f"workload.{setting}"))

CHECKOUT = Path(__file__).parents[2]


@dataclass
class Cluster:
    """Where it is reached, and the platform file for it."""

    env: dict[str, str]
    file: Path
    namespace: str

    def chaos(self, *args: object, timeout_s: float = RUN_S_MAX) -> subprocess.CompletedProcess[str]:
        return subprocess.run([CHAOS, *map(str, args)], env=self.env, capture_output=True, text=True, timeout=timeout_s)

    def run(self, experiment: object, runs: Path, *args: object) -> subprocess.CompletedProcess[str]:
        where = ("--platform", "kubernetes", "--platform-file", self.file, "--runs", runs)
        return self.chaos("run", experiment, *where, *args)

    def saying(self, folder: Path, **more: object) -> Cluster:
        """The same cluster, with a platform file that says more."""
        file = folder / "platform.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(self.file.read_text()), **more}))
        return Cluster(self.env, file, self.namespace)

    def capabilities(self) -> frozenset[str]:
        """What the agent of every node can do."""
        agents = json.loads(self.kubectl("-n", SYSTEM, "get", "leases", "-l", AGENT, "-o", "json").stdout)["items"]
        told = [agent["metadata"]["annotations"][CAPABILITIES].split(",") for agent in agents]
        return frozenset.intersection(*map(frozenset, told))

    def left(self, run_dir: Path | None = None) -> str:
        """What of a run, or of any, is in the job's namespace."""
        kinds = "pods,statefulsets,services,configmaps,leases,injections"
        label = Names.of(run_dir.name, self.namespace).selector if run_dir else RUN
        return self.kubectl("get", kinds, "-l", label, "-o", "name").stdout

    def kubectl(self, *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "-n", self.namespace, *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, input=text)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, chaos_env) -> Iterator[Cluster]:
    """With agents installed. The one that was started here goes afterwards."""
    folder = tmp_path_factory.mktemp("cluster")
    if KUBE:
        yield from started(folder, chaos_env)
    elif FILE and "KUBECONFIG" in os.environ:
        yield installed(chaos_env, Path(FILE))
    else:
        pytest.skip("set TORCHCHAOS_KUBE, or KUBECONFIG and TORCHCHAOS_PLATFORM_FILE")


def started(folder: Path, env: dict[str, str], nodes: int = 3) -> Iterator[Cluster]:
    program = [sys.executable, f"{KUBE}/kube"]
    file = folder / "platform.yaml"
    file.write_text(yaml.safe_dump(this_machine()))
    LEDGERS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "torchchaos", LEDGERS], check=True)
    try:
        up = subprocess.run([*program, "up", "--nodes", str(nodes)], capture_output=True, text=True, timeout=UP_S)
        assert up.returncode == 0, up.stderr
        for name, weight in cgroups.WEIGHTS.items():  # As those of local pods: all nodes together are one group here.
            for path in Path("/sys/fs/cgroup").rglob(f"kube/{name}"):
                path.write_text(weight)
        found = re.search(r"export KUBECONFIG=(\S+) PATH=([^:]+):", up.stdout)
        assert found is not None, up.stdout
        yield installed({**env, "KUBECONFIG": found[1], "PATH": f"{found[2]}:{os.environ['PATH']}"}, file)
    finally:
        subprocess.run([*program, "down"], timeout=UP_S)
        subprocess.run(["umount", "--lazy", LEDGERS], check=True)


def installed(env: dict[str, str], file: Path) -> Cluster:
    cluster = Cluster(env, file, yaml.safe_load(file.read_text()).get("namespace", "torchchaos"))
    done = cluster.chaos("install", "kubernetes", "--platform-file", file)
    assert done.returncode == 0, done.stderr
    return cluster


def this_machine() -> dict[str, object]:
    """Pods in which this checkout runs with this interpreter, in an image that holds nothing but folders."""
    prefix = str(Path(sys.prefix).resolve())  # In a pod, a link that leads out of the checkout leads nowhere.
    paths = ["/usr", "/etc/alternatives", prefix, sys.base_prefix, str(CHECKOUT)]
    paths = [path for path in paths if not any(path != other and path.startswith(f"{other}/") for other in paths)]
    volumes = [{"name": f"path-{n}", "hostPath": {"path": path}} for n, path in enumerate(paths)]
    mounts = [{"name": f"path-{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(paths)]
    program = {
        "image": "lab.local/host:1",
        "python": f"{prefix}/bin/{Path(sys.executable).name}",
        "pod": {"volumes": volumes},
        "container": {
            "imagePullPolicy": "Never",
            "volumeMounts": mounts,
            "env": [{"name": "PYTHONPATH", "value": f"{CHECKOUT}:{JOBS}"}],
        },
    }
    return {
        "job": program,
        "agent": program,
        "interfaces": {"control": "eth0", "data": "net1"},
        "node_interfaces": {"control": "eth0", "data": "eth1"},
    }


def until(met: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    began_s = time.monotonic()
    while not met():
        assert time.monotonic() - began_s < within_s, f"not within {within_s:g} s: {what}"


@pytest.fixture(scope="module")
def meshes(cluster: Cluster) -> Iterator[None]:
    """The cluster knows meshes; nobody keeps them yet."""
    definition = Path(KUBE, "monarchmesh-crd.yaml")
    if not definition.is_file():
        pytest.skip("set TORCHCHAOS_KUBE: its monarchmesh-crd.yaml is what the Monarch operator installs")
    assert cluster.kubectl("apply", "--server-side", "-f", str(definition)).returncode == 0
    until(lambda: cluster.kubectl("get", MESHES).returncode == 0, "meshes are known")
    yield
    cluster.kubectl("delete", "crd", MESHES)


@pytest.fixture
def operator(cluster: Cluster, meshes: None) -> Iterator[None]:
    """Somebody keeps meshes."""
    command = [sys.executable, "-m", "tests.kubernetes.mesh_operator"]
    with subprocess.Popen(command, env=cluster.env, cwd=CHECKOUT) as program:
        yield
        program.kill()


@pytest.fixture
def judged() -> Callable[[Path], dict[str, str]]:
    """The outcome of each monitor of the only run in a folder."""

    def judged(runs: Path) -> dict[str, str]:
        (folder,) = runs.iterdir()
        verdict = msgspec.json.decode((folder / "verdict.json").read_bytes(), type=Verdict)
        return {finding.monitor: finding.outcome.value for finding in verdict.findings}

    return judged
