"""The commands `chaos report`, `compare` and `serve`: reports of what is stored."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chaos.report import compare, page, record
from chaos.report.serve import LOOPBACK, Server

app = typer.Typer()


@app.command()
def report(run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]) -> None:
    """Write report.html and report.md of a stored run again, from its plan and journal alone."""
    page.write(run_dir)
    typer.echo(f"report  {run_dir / page.NAME}")


@app.command(name="compare")
def compare_runs(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="The folder of a run.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The folder of another one.")],
    html: Annotated[Path | None, typer.Option(help="Write the comparison as a page, too.")] = None,
) -> None:
    """Show two stored runs side by side: what was different, what was found, and every number with its change."""
    compared = compare.Comparison(record.read(run_a), record.read(run_b))
    compare.show(compared, Console())
    if html is not None:
        compare.write(compared, html)


@app.command()
def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="The folder that holds runs and gates.")] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Where to listen; whoever can reach it can read all of the folder.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8080,
) -> None:
    """Show runs and gates in a browser until Ctrl-C."""
    with Server(runs, host, port) as server, suppress(KeyboardInterrupt):
        typer.echo(f"{server.url} shows {runs}; Ctrl-C ends that")
        server.serve_forever(poll_interval=0.1)
