"""What `chaos` does to a cluster besides runs: prepare it, look at it, clear it up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer
import yaml

from chaos.platforms.kubernetes import doctor, options, sweep
from chaos.platforms.kubernetes import install as installing
from chaos.platforms.kubernetes.client import connect
from chaos.platforms.local.doctor import Check

install = typer.Typer(help="Prepare a platform for runs.", no_args_is_help=True)
uninstall = typer.Typer(help="Take out what was installed.", no_args_is_help=True)

FileOption = Annotated[Path, typer.Option("--platform-file", help="What of the cluster is particular: see README.md.")]


@install.callback()
@uninstall.callback()
def platforms() -> None:
    """The local platform needs neither."""


@install.command("kubernetes")
def install_kubernetes(
    platform_file: FileOption,
    only_print: Annotated[bool, typer.Option("--print", help="Print the manifests and touch nothing.")] = False,
) -> None:
    """Put agents, rights and policies into the cluster, and let the job's namespace opt in."""
    read = options.read(platform_file)
    if only_print:
        yaml.safe_dump_all(installing.manifests(read), sys.stdout, sort_keys=False)
        return
    anyio.run(installing.install, connect(read.context), read)
    print("every node that takes pods has an agent that is ready")


@uninstall.command("kubernetes")
def uninstall_kubernetes(platform_file: FileOption) -> None:
    """End every injection, then take out what was installed; the job's namespace stays."""
    read = options.read(platform_file)
    anyio.run(installing.uninstall, connect(read.context), read)


def probe(platform_file: Path) -> list[Check]:
    """What the cluster can do, and what to type for the rest."""
    read = options.read(platform_file)
    return anyio.run(doctor.probe, connect(read.context), read)


def clean(platform_file: Path) -> list[str]:
    """Remove what runners that were killed left in the job's namespace; the runs. Living runs are not touched."""
    read = options.read(platform_file)
    kube = connect(read.context)
    dead = anyio.run(sweep.find_dead, kube, read.namespace)
    for names in dead:
        anyio.run(sweep.remove, kube, names)
    return [f"run {names.run}" for names in dead]


def abort(platform_file: Path) -> list[str]:
    """End every run in the job's namespace, and its faults at once; the runs."""
    read = options.read(platform_file)
    return [f"run {names.run}" for names in anyio.run(sweep.abort, connect(read.context), read.namespace)]
