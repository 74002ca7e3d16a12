"""The same experiments on local pods and on Kubernetes, side by side, with the real job.

    python -m tests.benchmarks.platforms [--only NAME ...] [--platforms local kubernetes] [--platform-file FILE]
                                         [--runs FOLDER] [--set KEY=VALUE ...]

Run by hand on a quiet machine, as root, from the repository's root. Without a platform file TORCHCHAOS_KUBE has a
cluster started for the time, as for tests/kubernetes. Prints a Markdown table as the runs end: verdict, the survivors'
gap, the return by its phases, and the runner's memory when the faults began and when all was over. A run that breaks is
a row like any other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chaos.check import VERDICT
from chaos.model.verdict import Outcome, Verdict
from chaos.platforms.kubernetes.options import read
from tests.conftest import CHAOS
from tests.kubernetes.conftest import KUBE, Cluster, started

EXPERIMENTS = ("steady", "replica-lost", "nic-down", "nic-down-control", "node-down", "cpu-starve", "storm")
PLATFORMS = ("local", "kubernetes")
NODES = 5
"""As many as the largest of them asks for: four of replicas, one of lighthouse and controller."""
MEASURES = {
    "survivors_continue": ("gap_s",),
    "replicas_rejoin": ("recovery_s", "respawn_s", "heal_s", "first_commit_s"),
}
COLUMNS = ("experiment", "platform", "verdict", "gap s", "back s", "respawn", "heal", "first commit", "runner MiB")


def run(experiment: str, where: tuple[str, ...], env: dict[str, str], runs: Path) -> list[str]:
    """One run: its cells from the verdict on. What it says goes to `runs`."""
    folder = runs / f"{experiment}-{len(list(runs.glob(f'{experiment}-*')))}"
    folder.mkdir(parents=True)
    memory_mib = [0, 0]
    command = [CHAOS, "run", experiment, "--runs", folder, *where]
    with (
        open(folder / "said.log", "w") as said,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            said.write(line)
            said.flush()
            if "phase: disturb" in line:
                memory_mib[0] = resident_mib(process.pid)
            if "phase: drain" in line:
                memory_mib[1] = resident_mib(process.pid)
    verdicts = list(folder.glob(f"*/{VERDICT}"))
    if not verdicts:
        return [f"none, exit {process.returncode}: see {folder}/said.log", *[""] * 5, ""]
    verdict = msgspec.json.decode(verdicts[0].read_bytes(), type=Verdict)
    return [said_of(verdict), *measures(verdict), "{} to {}".format(*memory_mib)]


def said_of(verdict: Verdict) -> str:
    bad = [finding.monitor for finding in verdict.findings if finding.outcome is not Outcome.PASS]
    return f"{verdict.outcome.value} {', '.join(bad)}".strip()


def measures(verdict: Verdict) -> Iterator[str]:
    of = {finding.monitor: finding.measures for finding in verdict.findings}
    for monitor, names in MEASURES.items():
        for name in names:
            value = of.get(monitor, {}).get(name)
            yield f"{value:.1f}" if isinstance(value, float) else ""


def resident_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


@contextmanager
def cluster(file: Path | None) -> Iterator[Cluster]:
    """As the platform file has it, or one for the time; this process reaches it as well."""
    if file is not None:
        yield Cluster(dict(os.environ), file, read(file).namespace)
        return
    if not KUBE:
        sys.exit("name a platform file, or set TORCHCHAOS_KUBE")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextmanager(started)(Path(folder), dict(os.environ), NODES) as found,
    ):
        os.environ.update(found.env)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS, choices=PLATFORMS)
    parser.add_argument("--platform-file", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/platforms"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    arguments = parser.parse_args()
    overrides = [word for one in arguments.overrides for word in ("--set", one)]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)

    def rows(platform: str, where: tuple[str, ...], env: dict[str, str]) -> None:
        for experiment in arguments.only:
            cells = run(experiment, (*where, *overrides), env, arguments.runs / platform)
            print(f"| {' | '.join([experiment, platform, *cells])} |", flush=True)

    if "local" in arguments.platforms:
        rows("local", (), dict(os.environ))
    if "kubernetes" in arguments.platforms:
        with cluster(arguments.platform_file) as found:
            rows("kubernetes", ("--platform", "kubernetes", "--platform-file", str(found.file)), found.env)


if __name__ == "__main__":
    main()
