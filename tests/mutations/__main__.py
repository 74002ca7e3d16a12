"""Prints the score: `python -m tests.mutations [SEEDS] [NAME...]`, with how many places of each run are tried."""

from __future__ import annotations

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.mutations.mutation import MUTATIONS, Mutation
from tests.mutations.score import SEEDS, Trial, idle, trials


def main(arguments: list[str]) -> int:
    seeds = range(int(arguments.pop(0))) if arguments and arguments[0].isdigit() else SEEDS
    chosen = [MUTATIONS[name] for name in arguments] or list(MUTATIONS.values())
    table = Table("mutation", "kind", "monitors that spoke", "right", "wrong", box=None, pad_edge=False)
    wrong: list[Trial] = []
    total: Counter[str] = Counter()
    for mutation in chosen:
        tried = list(trials(mutation, seeds))
        missed = [one for one in tried if not one.right]
        wrong += missed
        kind = "harmless" if mutation.harmless else "violating"
        total[kind] += len(tried)
        total[f"{kind} wrong"] += len(missed)
        table.add_row(
            f"{mutation.theme}.{mutation.name}", kind, _spoke(mutation, tried), str(len(tried)), str(len(missed))
        )
    console = Console(width=180)
    console.print(table)
    for one in wrong:
        console.print(one.said, markup=False, highlight=False, soft_wrap=True)
    if idle():
        console.print(f"no recorded run gives {', '.join(idle())} anything to judge")
    console.print(
        f"{len(chosen)} mutations; violating: {total['violating'] - total['violating wrong']} of {total['violating']} "
        f"caught; harmless: {total['harmless wrong']} alarms in {total['harmless']}"
    )
    return 1 if wrong else 0


def _spoke(mutation: Mutation, tried: list[Trial]) -> str:
    """The monitors that spoke and how often; those that had to first."""
    counts = Counter(f"{name} {outcome.value}" for one in tried for name, outcome in one.spoke.items())
    ranked = sorted(counts, key=lambda said: (said.split()[0] not in mutation.speakers, -counts[said]))
    return ", ".join(f"{said} {counts[said]}" for said in ranked[:4])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
