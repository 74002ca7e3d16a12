"""The verdict: what the monitors found, in three values."""

from __future__ import annotations

import enum

import msgspec


class Outcome(enum.Enum):
    """UNKNOWN is not a pass: something that had to be seen was not seen."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_code(self) -> int:
        return {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 2}[self]


class Finding(msgspec.Struct, frozen=True):
    """What one monitor says of one run.

    `reading` is the sentence a person needs; `measures` are its numbers, units in their names;
    `evidence` are journal positions (`seq`).
    """

    monitor: str
    outcome: Outcome
    reading: str
    measures: dict[str, float | int | str | None] = {}
    evidence: tuple[int, ...] = ()


class Expectation(msgspec.Struct, frozen=True):
    """Whether a run on a known bug showed it; `reading` is the sentence a person needs."""

    met: bool
    reading: str


class Verdict(msgspec.Struct, frozen=True):
    """The judgement of a run. `reasons` say why it is not PASS; empty for a PASS.

    A run on a known bug succeeds when it shows the bug; one that passes instead fails, because upstream may have
    repaired the bug and the experiment is to be looked at.
    """

    outcome: Outcome
    experiment: str
    isolation: str
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...]
    expectation: Expectation | None = None

    @property
    def exit_code(self) -> int:
        if self.expectation is None:
            return self.outcome.exit_code
        if self.expectation.met:
            return Outcome.PASS.exit_code
        return self.outcome.exit_code or Outcome.FAIL.exit_code
