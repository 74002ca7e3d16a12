"""One call of `chaos gate`: everything that can be refused before the first run, then the course, then the outputs.

What runs an experiment is handed in; nothing here knows of platforms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec
from rich.console import Console

from chaos.gate import baseline as baselines
from chaos.gate import course, outputs
from chaos.gate.allowance import allowances
from chaos.gate.course import Execute, Orders
from chaos.gate.suite import Suite
from chaos.model.errors import BadInput
from chaos.model.gate import Gate
from chaos.model.verdict import Outcome
from chaos.report import page
from chaos.run.folder import claim, claimed


@dataclass(frozen=True)
class Options:
    """What the user typed beside the suite; `junit` and `markdown` are further places for what the folder gets."""

    runs: Path
    resume: Path | None = None
    budget_s: float | None = None
    baseline: Path | None = None
    update_baseline: bool = False
    junit: Path | None = None
    markdown: Path | None = None


class Call:
    """A call that can go on: its baseline fits, and its outputs can be written. Raises BadInput otherwise."""

    def __init__(self, suite: Suite, options: Options) -> None:
        self.asked = suite
        self.suite = suite.recording() if options.update_baseline else suite
        self.options = options
        self.budget_s = options.budget_s or self.suite.spec.budget_s
        self.baseline_file = options.baseline or suite.baseline
        if options.update_baseline and self.baseline_file is None:
            raise BadInput("--update-baseline knows no file to write; type --baseline FILE as well")
        record = self.baseline_file if options.update_baseline else None
        for path in filter(None, (options.junit, options.markdown, record)):
            _check_writable(path)
        self.baseline = None
        if self.baseline_file is not None and not options.update_baseline:
            rest_s = inf if options.resume else self.budget_s  # Of a gate that goes on only the rest is to be made.
            self.baseline = baselines.read(self.baseline_file, suite, rest_s)

    def make(
        self,
        execute: Execute,
        stack: dict[str, str],
        machine: dict[str, str],
        console: Console,
        seen: Callable[[Gate], None],
    ) -> Gate:
        """Go through with it, and tell. The gate's folder gets the record, a page, Markdown and JUnit XML."""

        def say(text: str) -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        compared = self.baseline_file if self.baseline is not None else None
        gate = course.begun(self.suite, stack, baselines.machine() | machine, compared)
        with self._folder(gate) as folder:
            if self.options.resume is not None:
                before = course.stored(folder)
                course.check_resumable(before, gate, folder)
                gate = msgspec.structs.replace(before, baseline=gate.baseline)
            course.save(gate, folder)
            everything = self.options.update_baseline
            notes = baselines.busy()
            if self.baseline is not None:
                short = [one for one in allowances(self.suite, self.baseline) if one.asked < one.needed]
                notes += tuple(f"the baseline may leave it open, {one}" for one in short)
            orders = Orders(self.suite, execute, folder, self.budget_s, self.baseline, everything, notes, say, seen)
            gate = course.go(gate, orders)
            outputs.show(gate, console)
            self._write(gate, folder, say)
        say(f"  report  {folder / page.GATE}")
        if not gate.complete:
            say(f"  to go on, type the same with --resume {folder}")
        if self.options.update_baseline:
            self._record(gate, say)
        return gate

    @contextmanager
    def _folder(self, gate: Gate) -> Iterator[Path]:
        if self.options.resume is None:
            with claimed(self.options.runs, f"gate-{gate.name}") as folder:
                yield folder
            return
        course.stored(self.options.resume)
        folder = self.options.resume.resolve()
        with claim(folder, f"gate-{gate.name}"):
            yield folder

    def _write(self, gate: Gate, folder: Path, say: course.Say) -> None:
        """What tells of the gate. A disk that takes none of it changes no outcome."""
        markdown, junit = outputs.markdown(gate, folder).encode(), outputs.junit(gate, folder)
        for path, content in (
            (folder / page.GATE, page.render_gate(gate).encode()),
            (folder / outputs.MARKDOWN, markdown),
            (folder / outputs.JUNIT, junit),
            (self.options.markdown, markdown),
            (self.options.junit, junit),
        ):
            try:
                if path is not None:
                    path.write_bytes(content)
            except OSError as error:
                say(f"  {path} cannot be written: {error.strerror}; the outcome stands")

    def _record(self, gate: Gate, say: course.Say) -> None:
        assert self.baseline_file is not None
        if gate.outcome is not Outcome.PASS:
            say(f"  the baseline {self.baseline_file} stays as it is: only a gate that passes can become one")
            return
        recorded = baselines.write(self.baseline_file, gate)
        say(f"  baseline  {self.baseline_file}")
        for one in allowances(self.asked, recorded):
            say(f"  {one}")


def _check_writable(path: Path) -> None:
    there = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}; type another file") from None
    if not there:
        path.unlink()
