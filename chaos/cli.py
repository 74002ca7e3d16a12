"""The command `chaos`, and the only place that wires the parts together.

Exit codes: 0 PASS, or a known bug as expected; 1 FAIL; 2 UNKNOWN, or an unfit machine; 64 bad input.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from math import inf
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer
from rich.console import Console
from rich.table import Table

from chaos import journal, registry
from chaos.check import VERDICT, check
from chaos.files import json_of
from chaos.gate import call as gates
from chaos.gate import suite as suites
from chaos.gate.course import Ended
from chaos.load import KNOWN_BUGS, load, shipped
from chaos.metrics.fold import Metrics
from chaos.metrics.serve import exporting
from chaos.metrics.stored import take, write
from chaos.model.errors import BadInput, MachineUnfit
from chaos.model.experiment import Experiment
from chaos.model.plan import Plan
from chaos.model.ports import Platform, PlatformLost, RunAborted
from chaos.model.verdict import Outcome, Verdict
from chaos.plan import check_capabilities, check_imports
from chaos.plan import plan as make_plan
from chaos.platforms import commands as platform_commands
from chaos.platforms.commands import PlatformFileOption, PlatformOption
from chaos.platforms.kubernetes import commands as kubernetes_commands
from chaos.platforms.kubernetes import options as kubernetes_options
from chaos.platforms.kubernetes.platform import KubernetesPlatform
from chaos.platforms.local import doctor as local_doctor
from chaos.platforms.local.platform import LocalPlatform
from chaos.report import catalogue, page, record, summary
from chaos.report import commands as report_commands
from chaos.report.explain import explain
from chaos.report.live import watching
from chaos.run.folder import claimed
from chaos.run.runner import run as run_plan
from chaos.run.runner import stack

EXIT_MACHINE = 2
EXIT_BAD_INPUT = 64
_INTERRUPTED = 130

app = typer.Typer(
    help="Chaos and resilience testing for fault-tolerant PyTorch training.",
    epilog="Exit codes: 0 PASS, or a known bug as expected; 1 FAIL; 2 UNKNOWN, or an unfit machine; 64 bad input.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(kubernetes_commands.install, name="install")
app.add_typer(kubernetes_commands.uninstall, name="uninstall")
app.add_typer(platform_commands.app)
app.add_typer(report_commands.app)


class _Console(Console):
    """A console whose reader may leave: the run goes on to its verdict, unheard."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


console = _Console()

ExperimentArg = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="A YAML file, or a name from `chaos list`.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value, for example topology.restart=never."),
]
SeedOption = Annotated[int | None, typer.Option(help="Another seed: other victims.")]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="[HOST]:PORT", help="Serve Prometheus metrics meanwhile; on loopback if no HOST."
    ),
]
RunsOption = Annotated[Path, typer.Option(help="Folder that gets a folder for each run.")]
IsolationOption = Annotated[
    str | None, typer.Option(help="namespaces, user-namespaces or processes; the best that works if not given.")
]


@app.command()
def run(
    experiment: ExperimentArg,
    overrides: SetOption = None,
    seed: SeedOption = None,
    runs: RunsOption = Path("runs"),
    isolation: IsolationOption = None,
    platform_name: PlatformOption = LocalPlatform.name,
    platform_file: PlatformFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show targets and times, start nothing.")] = False,
    metrics_address: MetricsOption = None,
) -> None:
    """Run an experiment on a platform and print the verdict."""
    planned = _plan(experiment, overrides, seed)
    platform = _platform(platform_name, isolation, platform_file, planned)
    if dry_run:
        summary.print_plan(planned, console)
        return
    with exporting(metrics_address, _say) as metrics:
        run_dir, verdict, _ = _execute(planned, platform, runs, metrics, shown=True)
        summary.print_verdict(verdict, console)
        _report(run_dir, verdict, _say)
    raise typer.Exit(verdict.exit_code)


@app.command()
def gate(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's YAML file, or a name from `chaos list`.")],
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    isolation: IsolationOption = None,
    platform_name: PlatformOption = LocalPlatform.name,
    platform_file: PlatformFileOption = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the gate in this folder.")] = None,
    budget_s: Annotated[float | None, typer.Option(min=1, help="Seconds that this call may take.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Earlier measurements to compare with.")] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Record this gate as the baseline, if it passes.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Another place for the JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Another place for the Markdown.")] = None,
    metrics_address: MetricsOption = None,
) -> None:
    """Repeat a suite of experiments until it is decided whether recovery works, and is no slower than it may be."""
    asked = suites.read(suite, overrides or ())
    plans = [make_plan(entry.experiment) for entry in asked.entries]
    platform, *_ = [_platform(platform_name, isolation, platform_file, planned) for planned in plans]
    call = gates.Call(asked, gates.Options(runs, resume, budget_s, baseline, update_baseline, junit, markdown))
    machine = {"platform": platform.name, "isolation": platform.isolation()}

    def execute(experiment: Experiment, folder: Path, limit_s: float) -> tuple[Path, Verdict, Ended]:
        planned = make_plan(experiment)
        platform = _platform(platform_name, isolation, platform_file, planned)
        done = _execute(planned, platform, folder, metrics, shown=console.is_terminal, limit_s=limit_s)
        _report(done[0], done[1])
        return done

    with exporting(metrics_address, _say) as metrics:
        seen = metrics.gated if metrics else (lambda gate: None)
        done = call.make(execute, stack(), machine, console, seen)
    raise typer.Exit(done.outcome.exit_code)


@app.command()
def plan(experiment: ExperimentArg, overrides: SetOption = None, seed: SeedOption = None) -> None:
    """Show what a run would hit, and when; start nothing."""
    summary.print_plan(_plan(experiment, overrides, seed), console)


@app.command(name="check")
def check_run(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Judge a stored run again, from its plan and journal alone."""
    verdict = check(run_dir)
    if as_json:
        sys.stdout.buffer.write(json_of(verdict))
    else:
        summary.print_verdict(verdict, console)
        _compare(run_dir / VERDICT, verdict)
    raise typer.Exit(verdict.exit_code)


@app.command(name="explain")
def explain_run(run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]) -> None:
    """Tell in plain words what happened in a stored run, and when."""
    _say(explain(run_dir).rstrip())


@app.command(name="metrics")
def print_metrics(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs and of gates, in order.")],
    to: Annotated[Path | None, typer.Option(help="Write this file, at one stroke, for a textfile collector.")] = None,
) -> None:
    """Print the metrics of stored runs in Prometheus' text format."""
    metrics = Metrics()
    for folder in folders:
        take(folder, metrics)
    if to is None:
        sys.stdout.write(metrics.text())
    else:
        write(metrics, to)


@app.command(name="list")
def list_all() -> None:
    """List shipped experiments, gates, faults and monitors."""
    whys = {name: msgspec.yaml.decode(text)["why"] for name, text in shipped().items()}
    _print_list("experiments", {name: why for name, why in whys.items() if not name.startswith(KNOWN_BUGS)})
    _print_list("known bugs", {name: why for name, why in whys.items() if name.startswith(KNOWN_BUGS)})
    _print_list("gates", {name: msgspec.yaml.decode(text)["why"] for name, text in suites.shipped().items()})
    _print_list("faults", {name: registry.summary(kind) for name, kind in registry.faults().items()})
    _print_list("monitors", {name: registry.summary(kind) for name, kind in registry.monitors().items()})


@app.command()
def faults(as_json: Annotated[bool, typer.Option("--json", help="Print the catalogue as JSON.")] = False) -> None:
    """Show every fault with its arguments and ranges, what it needs, and where on this machine it works."""
    capabilities = {isolation: local_doctor.capabilities(isolation) for isolation in local_doctor.available()}
    entries = catalogue.entries(registry.faults().values(), capabilities)
    if as_json:
        sys.stdout.buffer.write(json_of(entries))
    else:
        catalogue.show(entries, console)


def main() -> None:
    """Entry point: every mistake of the user's is one line and exit code 64."""
    try:
        status = app(standalone_mode=False)
    except typer.TyperException as error:
        status = _refuse(error.format_message(), EXIT_BAD_INPUT)
    except BadInput as error:
        status = _refuse(str(error), EXIT_BAD_INPUT)
    except (MachineUnfit, PlatformLost, journal.JournalBroken) as error:
        status = _refuse(str(error), EXIT_MACHINE)
    except (typer.Abort, KeyboardInterrupt):
        status = _INTERRUPTED
    if status == _INTERRUPTED:  # As Typer, too, ends what was interrupted.
        status = _refuse("interrupted", EXIT_MACHINE)
    sys.exit(status if isinstance(status, int) else 0)


def _plan(reference: str, overrides: list[str] | None, seed: int | None) -> Plan:
    experiment: Experiment = load(reference, overrides or ())
    if seed is not None:
        experiment = msgspec.structs.replace(experiment, seed=seed)
    return make_plan(experiment)


def _platform(name: str, isolation: str | None, file: Path | None, planned: Plan) -> Platform:
    """The platform that can run the plan. BadInput when it cannot."""
    platform = _reached(name, isolation, file, planned)
    if platform.name == LocalPlatform.name:
        check_imports(planned)
    check_capabilities(planned, platform.name, platform.capabilities())
    return platform


def _reached(name: str, isolation: str | None, file: Path | None, planned: Plan) -> Platform:
    file = platform_commands.cluster(name, file)
    if file is None:
        return LocalPlatform(isolation)
    if isolation is not None:
        raise BadInput(f"--platform kubernetes takes no --isolation; remove {isolation}")
    return KubernetesPlatform.reach(kubernetes_options.read(file), planned.workload, planned.topology)


def _execute(
    planned: Plan, platform: Platform, runs: Path, metrics: Metrics | None, *, shown: bool, limit_s: float = inf
) -> tuple[Path, Verdict, Ended]:
    """Run the plan once, in a new folder, and judge it; `shown`: a person watches."""
    with claimed(runs, planned.experiment.name) as run_dir:
        with watching(planned, console) if shown else nullcontext() as watcher:
            watchers = [watcher] if watcher else []
            watchers += [metrics.begin(planned, run_dir.name)] if metrics else []
            ended = _go(lambda: run_plan(planned, platform, run_dir, tuple(watchers)), limit_s)
        verdict = check(run_dir)
    if metrics:
        metrics.judged(planned, verdict)
    return run_dir, verdict, ended


def _report(run_dir: Path, verdict: Verdict, say: Callable[[str], None] = lambda where: None) -> None:
    """Write what tells of the run, and say where. A disk that takes none of it changes no verdict."""
    try:
        (run_dir / VERDICT).write_bytes(json_of(verdict))
        page.write(run_dir, record.read(run_dir, verdict))
    except (OSError, BadInput) as refused:
        _refuse(f"the verdict stands, but {refused}", verdict.exit_code)
    else:
        say(f"  report  {run_dir / page.NAME}")


def _go(work: Callable[[], Awaitable[None]], limit_s: float = inf) -> Ended:
    """Run the work; of what went wrong in several places at once, raise what a person can act on."""
    try:
        return anyio.run(_interruptible, work, limit_s)
    except BaseExceptionGroup as group:
        cause: BaseException | None = group.subgroup((journal.JournalBroken, PlatformLost, MachineUnfit))
        if cause is None and group.subgroup(RunAborted) is not None:
            return Ended.INTERRUPTED
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise cause or group from None


async def _interruptible(work: Callable[[], Awaitable[None]], limit_s: float) -> Ended:
    """Do the work; the first signal ends it in order, further ones are answered but hurry nothing."""
    async with anyio.create_task_group() as tasks:
        working = anyio.CancelScope()

        async def watch_signals() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    _say(f"{number.name}: giving everything back")
                    working.cancel()

        tasks.start_soon(watch_signals)
        with working, anyio.move_on_after(limit_s) as time_left:
            await work()
        tasks.cancel_scope.cancel()
    if working.cancel_called:
        return Ended.INTERRUPTED
    return Ended.OUT_OF_TIME if time_left.cancelled_caught else Ended.DONE


def _compare(stored: Path, verdict: Verdict) -> None:
    if not stored.is_file():
        return
    try:
        was: Outcome = msgspec.json.decode(stored.read_bytes(), type=Verdict).outcome
    except msgspec.MsgspecError as misfit:
        _say(f"  {stored} cannot be read: {misfit}")
        return
    if was is not verdict.outcome:
        _say(f"  {stored} said {was.value}: it was made by another version or was changed")


def _print_list(title: str, entries: dict[str, str]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, text in entries.items():
        table.add_row(f"  {name}", text)
    _say(title)
    console.print(table)


def _refuse(message: str, status: int) -> int:
    print(f"chaos: {message}", file=sys.stderr)
    return status


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
