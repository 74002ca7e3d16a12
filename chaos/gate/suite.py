"""A suite: the YAML file of a gate, which experiments it repeats and what their runs must show together.

    name: smoke
    why: Recovery still works, and takes no longer than it may.
    budget_s: 300
    experiments:
      - experiment: replica-lost
        runs: 5
        objectives:
          - {measure: replicas_rejoin.recovery_s, percentile: 50, at_most: 40, worse_by_max: 1.5}

Everything that no number of runs could ever answer is refused here, before the first of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.check import digest_of
from chaos.load import convert, load, parse
from chaos.model.errors import BadInput, near
from chaos.model.experiment import Count, Experiment, Seconds
from chaos.registry import monitors

VERDICT = "verdict"
"""The rate of runs that pass as a whole."""

Share = Annotated[float, Meta(gt=0, le=1)]


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the runs of one experiment must show. One run is one observation, for what happens within it is not
    independent.

    `rate`: the share of runs in which a monitor passes, or in which the whole `verdict` does, is `at_least` so much.
    `measure`: of a number that a monitor tells, `monitor.measure`, the `percentile` over all runs is `at_most` or
    `at_least` so much; against a baseline it is no more than `worse_by_max` times worse.
    """

    rate: str | None = None
    measure: str | None = None
    percentile: Annotated[float, Meta(gt=0, lt=100)] | None = None
    at_most: float | None = None
    at_least: float | None = None
    worse_by_max: Annotated[float, Meta(ge=1)] | None = None

    @property
    def monitor(self) -> str:
        return (self.measure or self.rate or "").partition(".")[0]

    @property
    def share(self) -> float:
        """The share of runs that must be good, of runs that are on the right side of the limit."""
        if self.measure is None:
            return self.at_least or 0.0
        percentile = Fraction(str(self.percentile)) / 100
        return float(percentile if self.at_most is not None else 1 - percentile)

    @property
    def label(self) -> str:
        if self.measure is None:
            of = "runs pass" if self.rate == VERDICT else f"runs pass {self.rate}"
            return f"all {of}" if self.at_least == 1 else f"at least {self.at_least:.0%} of {of}"
        percentile = "median" if self.percentile == 50 else f"percentile {self.percentile:g}"
        limit = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        return f"{percentile} of {self.measure} {limit}"


EVERY_RUN = Objective(rate=VERDICT, at_least=1.0)


class EntrySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An experiment, a file beside the suite's or a shipped one, and its repeats: seeds count up from `seed`.

    `set` holds overrides as `chaos run --set` takes them; `name` tells two entries of one experiment apart. A baseline
    is recorded from `baseline_runs`, if they are more: it is made once, and each comparison gains by it. That every run
    passes is always an objective, unless another rate of `verdict` is given.
    """

    experiment: str
    runs: Count
    objectives: tuple[Objective, ...] = ()
    baseline_runs: Count = 1
    seed: int = 1
    set: dict[str, Any] = {}
    name: str | None = None


class SuiteSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. `budget_s` bounds one call of `chaos gate`; `invalid_max` runs that prove nothing are made once more.

    `confidence` bounds the errors of the whole gate: how often it passes what it should not, how often its limits fail
    what they should not, and its comparison with `baseline`, a file beside the suite's.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    why: str
    budget_s: Seconds
    experiments: Annotated[tuple[EntrySpec, ...], Meta(min_length=1)]
    confidence: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95
    invalid_max: Annotated[int, Meta(ge=0)] = 1
    baseline: str | None = None


@dataclass(frozen=True)
class Entry:
    """One experiment of a suite, loaded. `version` changes with what is done to the job and how it is judged, not with
    the job: that is what gates compare.
    """

    name: str
    experiment: Experiment
    runs: int
    baseline_runs: int
    seed: int
    objectives: tuple[Objective, ...]

    @property
    def version(self) -> str:
        data = msgspec.to_builtins(self.experiment)
        data = {key: value for key, value in data.items() if key not in ("why", "seed")}
        data["workload"] = {key: data["workload"][key] for key in ("replicas", "min_replicas", "steps")}
        return digest_of(data)

    @property
    def job(self) -> str:
        workload = self.experiment.workload
        settings = [f"{key}={value}" for key, value in sorted(workload.settings.items())]
        return " ".join([workload.program, workload.recipe, *settings])


@dataclass(frozen=True)
class Suite:
    """A suite, loaded and checked. `reference` is what the user typed."""

    reference: str
    spec: SuiteSpec
    entries: tuple[Entry, ...]

    @property
    def risk(self) -> Fraction:
        """How often the gate may pass what it should not."""
        return 1 - Fraction(str(self.spec.confidence))

    @property
    def risk_fail(self) -> Fraction:
        """How often one limit may fail what it should not, so that all of them together do it no more often than
        `risk`. Comparisons share their own risk the same way.
        """
        return self.risk / max(1, sum(guesses(one) for entry in self.entries for one in entry.objectives))

    @property
    def risk_worse(self) -> Fraction:
        compared = [one for entry in self.entries for one in entry.objectives if one.worse_by_max is not None]
        return self.risk / max(1, len(compared))

    @property
    def fingerprint(self) -> str:
        """Of everything that runs must have in common to be counted together; not of the time that they may take."""
        entries = [(e.name, e.version, e.job, e.runs, e.seed, e.objectives) for e in self.entries]
        return digest_of(msgspec.to_builtins((entries, self.spec.confidence, self.spec.invalid_max)))

    def recording(self) -> Suite:
        """The suite with which a baseline of this one is recorded; its budget grows with its runs."""
        more = tuple(dataclasses.replace(entry, runs=max(entry.runs, entry.baseline_runs)) for entry in self.entries)
        longer = sum(entry.runs for entry in more) / sum(entry.runs for entry in self.entries)
        spec = msgspec.structs.replace(self.spec, budget_s=self.spec.budget_s * longer)
        return dataclasses.replace(self, spec=spec, entries=more)

    @property
    def baseline(self) -> Path | None:
        return Path(self.reference).parent / self.spec.baseline if self.spec.baseline else None


def guesses(objective: Objective) -> bool:
    """Whether it concludes from the runs that were made to others; that all runs pass is counted."""
    return objective.share < 1


def shipped() -> dict[str, str]:
    """Name -> YAML text of every suite that comes with torchchaos."""
    folder = resources.files("experiments") / "gates"
    files = sorted((one for one in folder.iterdir() if one.name.endswith(".yaml")), key=lambda one: one.name)
    return {file.name.removesuffix(".yaml"): file.read_text() for file in files}


def read(reference: str, overrides: Iterable[str] = ()) -> Suite:
    """The suite in the file `reference`, or the shipped one of that name; overrides go to each of its experiments.

    Raises BadInput.
    """
    spec = convert(parse(reference, _text(reference), "a suite: name:, why:, experiments:, ..."), SuiteSpec, reference)
    entries = tuple(
        _entry(f"{reference}: experiments.{index}", one, Path(reference).parent, tuple(overrides))
        for index, one in enumerate(spec.experiments)
    )
    names = [entry.name for entry in entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInput(f"{reference}: two experiments are called {twice[0]!r}; type name: for one of them")
    suite = Suite(reference, spec, entries)
    for entry in entries:
        for objective in entry.objectives:
            _check_runs(f"{reference}: {entry.name}", entry, objective, suite)
    return suite


def _text(reference: str) -> str:
    path = Path(reference)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else "it is no text"
            raise BadInput(f"{reference}: {said}; give a suite's YAML file, or one of {', '.join(shipped())}") from None
    if reference not in shipped():
        raise BadInput(f"no gate is called {reference!r}; {near(reference, shipped())}")
    return shipped()[reference]


def _entry(where: str, spec: EntrySpec, folder: Path, overrides: tuple[str, ...]) -> Entry:
    beside = folder / spec.experiment
    own = [f"{key}={msgspec.json.encode(value).decode()}" for key, value in spec.set.items()]
    experiment = load(str(beside) if beside.is_file() else spec.experiment, [*own, *overrides])
    objectives = spec.objectives
    if all(one.rate != VERDICT for one in objectives):
        objectives = (EVERY_RUN, *objectives)
    for index, objective in enumerate(spec.objectives):
        _check(f"{where}.objectives.{index}", objective, experiment)
    return Entry(spec.name or experiment.name, experiment, spec.runs, spec.baseline_runs, spec.seed, objectives)


def _check(where: str, objective: Objective, experiment: Experiment) -> None:
    if (objective.rate is None) == (objective.measure is None):
        raise BadInput(f"{where} needs either rate or measure; type for example {{rate: verdict, at_least: 1}}")
    if objective.rate is not None:
        if objective.at_least is None or not 0 < objective.at_least <= 1:
            raise BadInput(f"{where}: a rate is at_least a share above 0, 1 at most; type for example at_least: 0.9")
        if objective.at_most is not None or objective.percentile is not None or objective.worse_by_max is not None:
            raise BadInput(f"{where}: a rate has no at_most, percentile or worse_by_max; remove them")
    elif objective.percentile is None or (objective.at_most is None) == (objective.at_least is None):
        raise BadInput(f"{where}: a measure needs its percentile and either at_most or at_least; type percentile: 50")
    judging = {*experiment.monitors, *(name for name, kind in monitors().items() if kind.proves)}
    if objective.rate != VERDICT and objective.monitor not in judging:
        remedy = near(objective.monitor, judging)
        raise BadInput(f"{where}: {objective.monitor!r} does not judge {experiment.name}; {remedy}")
    if objective.measure is not None and "." not in objective.measure:
        raise BadInput(f"{where}: {objective.measure!r} names no measure; type monitor.measure, see a run's report")


def _check_runs(where: str, entry: Entry, objective: Objective, suite: Suite) -> None:
    """Refuse what so few runs could never show, or never refute."""
    if not guesses(objective):
        return
    share = Fraction(str(objective.share))
    number = next(n for n in range(1, 100_000) if share**n <= suite.risk and (1 - share) ** n <= suite.risk_fail)
    if entry.runs < number:
        raise BadInput(
            f"{where}: {entry.runs} runs can never tell whether {objective.label}, at a confidence of "
            f"{suite.spec.confidence:g}; type runs: {number} or more"
        )
