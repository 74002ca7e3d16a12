"""Every injection on two kernels: in force, reverted, and what is left once the agent that held it was killed.

    TORCHCHAOS_VM=PROGRAM python -m tests.benchmarks.kernels [--timeout-s 3600]

As root, from the repository's root; without TORCHCHAOS_VM on this kernel alone. Prints a table; exit 1 if anything was
left, or a case was tried on neither.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chaos.agent.client import Refused
from chaos.agent.wire import State
from tests.agent import stock_kernel
from tests.agent.cases import CASES, Case, difference, look
from tests.agent.grounds import Grounds
from tests.agent.pods import Agent, started_agent, wait_for
from tests.agent.trials import trial

TRIALS_MAX = 4
"""The agent may be killed before it holds everything; then it is tried again with the rest."""


class Row(msgspec.Struct, frozen=True):
    """One case on one kernel; `missing` says why it was not tried."""

    case: str
    missing: str = ""
    in_force: str = ""
    reverted: str = ""
    left: str = ""


def rows() -> Iterator[Row]:
    """All cases on the kernel that this runs on."""
    with started_agent() as agent, Grounds() as grounds:
        left = dict(killed(agent, grounds))
        for case in CASES:
            yield Row(case.name, case.missing()) if case.missing() else tried(agent, grounds, case, left)


def tried(agent: Agent, grounds: Grounds, case: Case, left: dict[str, str]) -> Row:
    pod = grounds[case.ground]
    before = look(pod)
    try:
        in_force = agent.grant(case.at(pod.site), case.injection)
    except Refused as refused:
        return Row(case.name, in_force=f"REFUSED: {refused}")
    reply = agent.release()
    wait_for("the pod is as it was", lambda: not difference(before, look(pod)))
    reverted = reply.evidence if reply.state is State.RELEASED else f"NOT: {reply.error}"
    return Row(case.name, in_force=in_force, reverted=reverted, left=left.get(case.name, "never held"))


def killed(agent: Agent, grounds: Grounds) -> Iterator[tuple[str, str]]:
    """Case -> what was left after the agent was killed while it held that, among others."""
    rest = [case for case in CASES if not case.missing()]
    for number in range(TRIALS_MAX):
        if not rest:
            return
        done = trial(agent, grounds, "agent", random.Random(number), rest)
        yield from dict.fromkeys(done.held, ", ".join(done.left) or "nothing").items()
        rest = [case for case in rest if case.name not in done.held]


def on_stock_kernel(within_s: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="torchchaos-vm-") as out:
        command = shlex.join([sys.executable, "-m", "tests.benchmarks.kernels", "--rows"])
        done = stock_kernel.run(f"apart {command} > $OUT/rows", Path(out), within_s)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return [msgspec.json.decode(line, type=Row) for line in Path(out, "rows").read_bytes().splitlines()]


def table(kernels: dict[str, list[Row]]) -> str:
    lines = ["| injection | kernel | in force | reverted | left after SIGKILL |", "|---|---|---|---|---|"]
    for rows_of_case in zip(*kernels.values(), strict=True):
        for kernel, row in zip(kernels, rows_of_case, strict=True):
            said = (
                f"not tried: needs {row.missing} | |"
                if row.missing
                else f"{row.in_force} | {row.reverted} | {row.left}"
            )
            lines.append(f"| {row.case} | {kernel} | {said} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="store_true", help="this kernel alone, as JSON lines")
    parser.add_argument("--timeout-s", type=int, default=3600, help="for the emulated machine")
    arguments = parser.parse_args()
    if arguments.rows:
        for row in rows():
            print(msgspec.json.encode(row).decode(), flush=True)
        return 0
    kernels = {"here": list(rows())}
    if stock_kernel.VM:
        kernels["stock"] = on_stock_kernel(arguments.timeout_s)
    print(table(kernels))
    every = list(zip(*kernels.values(), strict=True))
    untried = [case[0].case for case in every if all(row.missing for row in case)]
    bad = [row.case for case in every for row in case if not row.missing and row.left != "nothing"]
    print(f"tried on neither: {', '.join(untried) or 'none'}; with something left: {', '.join(bad) or 'none'}")
    return 1 if untried or bad else 0


if __name__ == "__main__":
    sys.exit(main())
