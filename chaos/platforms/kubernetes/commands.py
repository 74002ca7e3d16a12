"""`chaos kubernetes ...`: prepare a cluster, look at it, clear it up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer
import yaml

from chaos.platforms.kubernetes import install as installing
from chaos.platforms.kubernetes import options, sweep
from chaos.platforms.kubernetes.client import connect

app = typer.Typer(help="Prepare a cluster for runs, and clear it up.", no_args_is_help=True)

FileOption = Annotated[Path, typer.Option("--platform-file", help="What of the cluster is particular: see README.md.")]


@app.command()
def install(
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


@app.command()
def uninstall(platform_file: FileOption) -> None:
    """End every injection, then take out what was installed; the job's namespace stays."""
    read = options.read(platform_file)
    anyio.run(installing.uninstall, connect(read.context), read)


@app.command()
def clean(platform_file: FileOption) -> None:
    """Remove what runners that were killed left in the job's namespace; living runs are not touched."""
    read = options.read(platform_file)
    kube = connect(read.context)
    dead = anyio.run(sweep.find_dead, kube, read.namespace)
    for names in dead:
        print(f"removing run {names.run}")
        anyio.run(sweep.remove, kube, names)
    print(f"{len(dead)} dead runs removed" if dead else "nothing was left behind")
