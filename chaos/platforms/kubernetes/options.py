"""The platform file: what of a cluster differs from site to site, as YAML. Everything has a default but the images.

namespace: torchchaos
job: {image: registry.example/training:1, pod: {tolerations: [...]}, container: {resources: {...}}}
agent: {image: registry.example/torchchaos-agent:1}
interfaces: {control: eth0, data: net1}
layout: mesh
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from chaos.load import convert
from chaos.model.errors import BadInput
from chaos.model.injections import Interface
from chaos.platforms.kubernetes.layout import Layout

INTERFACES = {Interface.CONTROL: "eth0", Interface.DATA: "eth0"}
"""One network for both, unless the platform file says otherwise."""


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods that run one image. `python` is the interpreter in it; `pod` and `container` are laid over their specs:
    lists are lengthened, maps merged, everything else replaced.
    """

    image: str
    python: str = "python3"
    pod: dict[str, Any] = {}
    container: dict[str, Any] = {}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A platform file. `context` is one of the kubeconfig, None its current one; `namespace` is the job's. `layout`
    None: what the cluster has.
    """

    job: Program
    agent: Program
    context: str | None = None
    namespace: str = "torchchaos"
    interfaces: dict[Interface, str] = {}
    layout: Layout | None = None

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
    return convert(data, Options, str(path))


def laid_over(base: Any, more: Any) -> Any:
    """`more` over `base`."""
    if isinstance(base, dict) and isinstance(more, dict):
        return {**base, **{key: laid_over(base[key], value) if key in base else value for key, value in more.items()}}
    if isinstance(base, list) and isinstance(more, list):
        return [*base, *more]
    return more
