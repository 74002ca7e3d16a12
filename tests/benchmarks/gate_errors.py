"""How often a gate errs, and what it finds: outcomes of the shipped smoke gate for jobs of known truth.

    python -m tests.benchmarks.gate_errors [--gates 2000]

The first table is exact. The second draws numbers with a known noise. The third goes through the whole gate, its early
stops included, with runs of the shipped core as they were recorded, and with the same made worse; the fourth says what
allowance their spread needs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from pathlib import Path

from chaos.gate import bounds, course
from chaos.gate.allowance import narrowest
from chaos.gate.baseline import Baseline, Measured
from chaos.gate.course import Ended, Orders
from chaos.gate.suite import Suite, read
from chaos.model.experiment import Experiment
from chaos.model.verdict import Finding, Outcome, Verdict

LIMIT_SHARES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 100)
TIMES = (1.0, 1.1, 1.3, 1.5, 1.75, 2.0, 3.0)
NOISES = (0.05, 0.1, 0.25)
RECORDED = (
    (0.463, 6.67, 0.974), (0.482, 6.57, 0.974), (0.449, 6.43, 0.977), (0.489, 4.78, 0.969), (0.538, 5.27, 0.971),
    (0.598, 4.89, 0.967), (0.604, 4.35, 0.968), (0.508, 6.42, 0.975), (0.473, 4.6, 0.968), (0.574, 5.93, 0.972),
    (0.53, 5.83, 0.973), (0.628, 6.01, 0.974), (0.558, 6.12, 0.973), (0.469, 4.59, 0.968), (0.453, 6.85, 0.976),
    (0.453, 5.03, 0.97), (0.612, 5.16, 0.969), (0.397, 4.5, 0.967), (0.568, 5.58, 0.973), (0.482, 5.78, 0.974),
)  # fmt: skip
"""The shipped core's gap_s, recovery_s and step_efficiency in 20 runs of `replica-lost`, on two cores that had nothing
else to do.
"""


@dataclass(frozen=True)
class Core:
    """A job whose runs are the recorded ones made worse; `breaks` of them fail."""

    name: str
    gap_more_s: float = 0.0
    recovery_more_s: float = 0.0
    times_slower: float = 1.0
    efficiency: float = 1.0
    breaks: float = 0.0

    def run(self, chance: random.Random) -> Verdict:
        broken = chance.random() < self.breaks
        outcome = Outcome.FAIL if broken else Outcome.PASS
        gap_s, recovery_s, efficiency = chance.choice(RECORDED)
        recovery_s = self.times_slower * recovery_s + self.recovery_more_s
        findings = (
            Finding("survivors_continue", Outcome.PASS, "", {"gap_s": gap_s + self.gap_more_s}),
            Finding("replicas_rejoin", outcome, "", {"recovery_s": recovery_s}),
            Finding("goodput", Outcome.PASS, "", {"step_efficiency": self.efficiency * efficiency}),
        )
        return Verdict(outcome, "replica-lost", "", ("it did not come back",) if broken else (), findings)


CORES = (
    Core("as it is"),
    Core("restart 8 s later", recovery_more_s=8),
    Core("heartbeat timeout tripled", gap_more_s=2),
    Core("every third step skipped", efficiency=0.67),
    Core("a tenth slower to return", times_slower=1.1),
    Core("one run of ten breaks", breaks=0.1),
    Core("one run of three breaks", breaks=0.33),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gates", type=int, default=2000)
    gates: int = parser.parse_args().gates
    suite = read("smoke")
    (entry,) = suite.entries
    print(f"smoke: {entry.runs} runs, confidence {suite.spec.confidence:g}\n")
    print("a median and its limit, exact: so many runs beyond the limit in truth")
    for percent in LIMIT_SHARES:
        said(f"{percent} %", limit_outcomes(entry.runs, Fraction(percent, 100), suite))
    allowed = next(one.worse_by_max for one in entry.objectives if one.monitor == "replicas_rejoin")
    assert allowed is not None
    print(f"\nno more than {allowed} times worse than a baseline of as many runs: so many times slower, and noise")
    for noise in NOISES:
        for times in TIMES:
            said(f"{times:g} times, {noise:.0%}", comparison_outcomes(entry.runs, times, allowed, noise, suite, gates))
    print(f"\nthe whole gate with a baseline of {entry.baseline_runs} runs")
    for core in CORES:
        said(core.name, whole(core, suite, gates // 4))
    print("\nthe narrowest allowance with which the shipped core passes nearly always")
    for name, values in zip(("gap_s", "recovery_s"), zip(*RECORDED, strict=True), strict=False):
        print(f"  {name:28} {narrowest(values, entry.runs, suite.risk):.2f}")


def said(name: str, outcomes: dict[Outcome, float]) -> None:
    shares = "  ".join(f"{outcome.value} {outcomes.get(outcome, 0):7.2%}" for outcome in Outcome)
    print(f"  {name:28} {shares}")


def limit_outcomes(runs: int, bad: Fraction, suite: Suite) -> dict[Outcome, float]:
    outcomes = dict.fromkeys(Outcome, 0.0)
    for number in range(runs + 1):
        outcome, _ = bounds.share_judged(runs - number, number, runs, 0.5, suite.risk, suite.risk_fail)
        outcomes[outcome] += float(comb(runs, number) * bad**number * (1 - bad) ** (runs - number))
    return outcomes


def comparison_outcomes(
    runs: int, times: float, allowed: float, noise: float, suite: Suite, gates: int
) -> dict[Outcome, float]:
    chance = random.Random(1)

    def draw(number: int) -> list[float]:
        return [chance.lognormvariate(0, noise) for _ in range(number)]

    def once() -> Outcome:
        now, limits = [value * times for value in draw(runs)], [value * allowed for value in draw(runs)]
        return bounds.order_judged(now, 0, limits, suite.risk, suite.risk_worse)[0]

    return shares(once, gates)


def whole(core: Core, suite: Suite, gates: int) -> dict[Outcome, float]:
    chance = random.Random(1)
    (entry,) = suite.entries

    def execute(experiment: Experiment, folder: Path, limit_s: float) -> tuple[Path, Verdict, Ended]:
        return folder, core.run(chance), Ended.DONE

    def gate(folder: Path) -> Outcome:
        runs = [course.counted_run("", 1, CORES[0].run(chance), 1.0) for _ in range(entry.baseline_runs)]
        measures = {name: tuple(run.measures[name] for run in runs) for name in runs[0].measures}
        before = Baseline("", "", {}, {}, {entry.name: Measured(entry.version, entry.job, (1.0,), measures)})
        orders = Orders(suite, execute, folder, 1e9, before, say=lambda text: None)
        return course.go(course.begun(suite, {}, {}, None), orders).outcome

    with tempfile.TemporaryDirectory() as folder:
        return shares(lambda: gate(Path(folder)), gates)


def shares(once: Callable[[], Outcome], times: int) -> dict[Outcome, float]:
    counted = Counter(once() for _ in range(times))
    return {outcome: number / times for outcome, number in counted.items()}


if __name__ == "__main__":
    main()
