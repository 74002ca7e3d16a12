"""The commands `chaos doctor`, `clean` and `abort`: looking at a machine or a cluster, and clearing it up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.model.errors import BadInput, near
from chaos.platforms.kubernetes import commands as kubernetes
from chaos.platforms.kubernetes.platform import KubernetesPlatform
from chaos.platforms.local import abort as aborting
from chaos.platforms.local import doctor as local_doctor
from chaos.platforms.local import sweep
from chaos.platforms.local.platform import LocalPlatform

app = typer.Typer()

PlatformOption = Annotated[str, typer.Option("--platform", help="local, for pods on this machine, or kubernetes.")]
PlatformFileOption = Annotated[Path | None, typer.Option(help="For kubernetes: what of the cluster is particular.")]


def cluster(name: str, file: Path | None) -> Path | None:
    """The platform file of a cluster; None for this machine. BadInput when the options do not fit together."""
    if name not in (LocalPlatform.name, KubernetesPlatform.name):
        raise BadInput(f"unknown platform {name!r}; {near(name, (LocalPlatform.name, KubernetesPlatform.name))}")
    if name == LocalPlatform.name and file is not None:
        raise BadInput(f"--platform-file {file} is for another platform; type --platform kubernetes as well")
    if name == KubernetesPlatform.name and file is None:
        raise BadInput("--platform kubernetes needs --platform-file FILE: see README.md")
    return file


@app.command()
def doctor(platform_name: PlatformOption = LocalPlatform.name, platform_file: PlatformFileOption = None) -> None:
    """Tell what this machine or a cluster can do, and how to get the rest."""
    file = cluster(platform_name, platform_file)
    checks = kubernetes.probe(file) if file else local_doctor.probe()
    table = Table(box=None, pad_edge=False, show_header=False)
    for item in checks:
        said = f"{item.found} ({item.meaning})" if file else item.meaning
        table.add_row("yes" if item.ok else "no", item.name, said if item.ok else f"{said}: {item.remedy}")
    Console().print(table)
    if not file:
        typer.echo(f"pods here: {local_doctor.isolation()}")


@app.command()
def clean(platform_name: PlatformOption = LocalPlatform.name, platform_file: PlatformFileOption = None) -> None:
    """Report and remove what dead runs left on this machine or in a cluster; living runs are not touched."""
    if file := cluster(platform_name, platform_file):
        removed = kubernetes.clean(file)
        for dead in removed:
            typer.echo(f"removed {dead}")
        typer.echo(f"{len(removed)} dead runs removed" if removed else "nothing was left behind")
        return
    leftovers = sweep.find()
    for leftover in leftovers:
        typer.echo(f"removing {leftover}")
    sweep.remove(leftovers)
    typer.echo(f"{len(leftovers)} leftovers removed" if leftovers else "nothing was left behind")


@app.command()
def abort(platform_name: PlatformOption = LocalPlatform.name, platform_file: PlatformFileOption = None) -> None:
    """End every living run on this machine, or in a cluster's namespace, and its faults at once."""
    if file := cluster(platform_name, platform_file):
        ended = [f"{run} ended" for run in kubernetes.abort(file)]
    else:
        ended = [f"run {run.name} {aborting.end(run)}" for run in aborting.find()]
    for line in ended or ["no run goes on"]:
        typer.echo(line)
