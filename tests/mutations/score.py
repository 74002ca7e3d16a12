"""How the monitors do on mutated runs: each mutation on each recorded run, at places chosen by seeds.

A violation is caught when one of the monitors that have to notice it gives one of the outcomes that it may, and the
run is no PASS. A harmless mutation must leave every monitor that passed the recorded run at PASS.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.api import Finding, Outcome
from chaos.model.verdict import Verdict
from chaos.registry import monitors
from tests.golden import recorded
from tests.mutations import faults, frames, innocent, lines, lives, states, steps, updates  # noqa: F401
from tests.mutations.mutation import JOURNAL, Mutation, NotHere, Run, judged_by_all

SEEDS = range(1)
"""There are many recorded runs, so that one place in each is many."""


@dataclass(frozen=True)
class Trial:
    """One mutation of one run. `spoke` are the monitors that did not pass, with their outcomes."""

    mutation: Mutation
    run: str
    seed: int
    verdict: Verdict
    spoke: dict[str, Outcome]

    @property
    def right(self) -> bool:
        """Caught, or no alarm."""
        if self.mutation.harmless:
            return self.verdict.outcome is Outcome.PASS
        heard = [self.spoke[name] for name in self.mutation.speakers & self.spoke.keys()]
        return self.verdict.outcome is not Outcome.PASS and bool(self.mutation.outcomes.intersection(heard))

    @property
    def said(self) -> str:
        """Where this was, and what was said instead of what had to be."""
        due = "PASS" if self.mutation.harmless else " or ".join(sorted(self.mutation.speakers))
        heard = [f"{finding.monitor} {finding.outcome.value}: {finding.reading}" for finding in self._speaking()]
        reasons = heard or list(self.verdict.reasons) or ["PASS"]
        return f"{self.mutation.name} on {self.run}, seed {self.seed}: due {due}; said " + "; ".join(reasons)

    def _speaking(self) -> Iterator[Finding]:
        return (finding for finding in self.verdict.findings if finding.outcome is not Outcome.PASS)


def trial(mutation: Mutation, whole: Run, seed: int) -> Trial:
    """Judge a mutated run by all monitors. NotHere when the run has no place for the mutation."""
    verdict = mutation.applied(whole, seed).verdict()
    readings = {f"{finding.monitor}: {finding.reading}" for finding in verdict.findings}
    spoke = {f.monitor: f.outcome for f in verdict.findings if f.outcome is not Outcome.PASS}
    if not readings.issuperset(verdict.reasons):
        spoke[JOURNAL] = Outcome.UNKNOWN
    return Trial(mutation, whole.name, seed, verdict, spoke)


def trials(mutation: Mutation, seeds: range = SEEDS) -> Iterator[Trial]:
    """The mutation at each of the seeds' places in every recorded run that has one, and a monitor that may notice."""
    for name in recorded.names():
        if mutation.speakers and not mutation.speakers & {JOURNAL, *run(name).judges}:
            continue
        for seed in seeds:
            try:
                yield trial(mutation, run(name), seed)
            except NotHere:
                continue


@functools.cache
def run(name: str) -> Run:
    """A recorded run as it is judged here."""
    return judged_by_all(recorded.load(name))


def idle() -> list[str]:
    """Monitors that no recorded run gives anything to judge."""
    busy = {name for whole in map(run, recorded.names()) for name in whole.plan.experiment.monitors}
    return sorted(monitors().keys() - busy)
