"""The platform file: what of a cluster differs from site to site, as YAML. Everything has a default but the images.

profile: oke
namespace: torchchaos
job: {image: registry.example/training:1, pod: {tolerations: [...]}}
replica: {container: {resources: {limits: {nvidia.com/gpu: 8}}}}
agent: {image: registry.example/torchchaos-agent:1}
interfaces: {control: eth0, data: net1}
layout: mesh
queue: {name: team-a, required: cloud.provider.com/topology-rack}
levels: [cloud.provider.com/topology-rack, kubernetes.io/hostname]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.load import convert
from chaos.model.errors import BadInput, near
from chaos.model.injections import Interface
from chaos.platforms.kubernetes.layout import Layout

INTERFACES = {Interface.CONTROL: "eth0", Interface.DATA: "eth0"}
"""One network for both, unless the platform file says otherwise."""


_PROFILES = Path(__file__).with_name("profiles")


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods that run one image. `python` is the interpreter in it; `pod` and `container` are laid over their specs:
    lists are lengthened, maps merged, everything else replaced.
    """

    image: str
    python: str = "python3"
    pod: dict[str, Any] = {}
    container: dict[str, Any] = {}


class Overlay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the replicas' pods alone: the control plane needs no GPUs and no second network."""

    annotations: dict[str, str] = {}
    pod: dict[str, Any] = {}
    container: dict[str, Any] = {}


class Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kueue's LocalQueue `name` admits the replicas: all together where one mesh or set keeps them, else each by
    itself, or, with `pod_group`, as one group of plain pods. They go into one domain of the topology level `required`,
    or of `preferred` if that can be.
    """

    name: str
    required: str | None = None
    preferred: str | None = None
    pod_group: bool = False
    admitted_within_s: Annotated[float, Meta(gt=0)] = 60.0

    def __post_init__(self) -> None:
        if self.required and self.preferred:
            raise ValueError("a queue's topology is required or preferred, not both; remove one")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A platform file. `context` is one of the kubeconfig, None its current one; `namespace` is the job's. `layout`
    None: what the cluster has. `levels` are the labels of nodes that tell where in the network they are, widest first.
    """

    job: Program
    agent: Program
    context: str | None = None
    namespace: str = "torchchaos"
    interfaces: dict[Interface, str] = {}
    node_interfaces: dict[Interface, str] = {}
    replica: Overlay = Overlay()
    layout: Layout | None = None
    queue: Queue | None = None
    levels: tuple[str, ...] = ()

    def node_nics(self) -> dict[str, str]:
        """The same of the nodes themselves, as far as it is said."""
        return {role.value: name for role, name in self.node_interfaces.items()}

    def nics(self) -> dict[str, str]:
        """Name of the interface for each role of one."""
        return {role.value: self.interfaces.get(role, name) for role, name in INTERFACES.items()}


def read(path: Path) -> Options:
    """BadInput when it is not there, is no YAML, or holds what nobody knows."""
    try:
        data = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise BadInput(f"--platform-file {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is no YAML: {error}") from None
    if isinstance(data, dict) and "profile" in data:
        data = laid_over(_profile(data.pop("profile"), path), data)
    return convert(data, Options, str(path))


def _profile(name: object, path: Path) -> Any:
    """What a kind of cluster has in common; the file is laid over it."""
    known = {file.stem: file for file in _PROFILES.glob("*.yaml")}
    if name not in known:
        raise BadInput(f"{path}: unknown profile {name!r}; {near(str(name), known)}")
    return msgspec.yaml.decode(known[str(name)].read_bytes())


def laid_over(base: Any, more: Any) -> Any:
    """`more` over `base`."""
    if isinstance(base, dict) and isinstance(more, dict):
        return {**base, **{key: laid_over(base[key], value) if key in base else value for key, value in more.items()}}
    if isinstance(base, list) and isinstance(more, list):
        return [*base, *more]
    return more
