"""What a gate tells: on the terminal, as a page, to a pull request as Markdown, to CI as JUnit XML. From its record.

In JUnit a failure means that the job broke or got too slow, an error that the experiments did not tell; what a gate
left open because it had failed already is skipped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.model.errors import BadInput
from chaos.model.gate import Gate, GateExperiment, GateRun, Reading
from chaos.model.verdict import Outcome
from chaos.model.wording import counted
from chaos.report import page
from chaos.report.explain import explain
from chaos.report.summary import STYLES, escape

MARKDOWN = "gate.md"
JUNIT = "junit.xml"

_PLURALS = {"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def show(gate: Gate, console: Console) -> None:
    """The outcome first, then each objective."""
    head = Text.assemble((gate.outcome.value, STYLES[gate.outcome]), f"  {gate.name}: {gate.reason}")
    console.print(head, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "experiment", "objective", "what was seen"):
        table.add_column(column, overflow="fold")
    for one in gate.experiments:
        for reading in one.readings:
            outcome = Text(reading.outcome.value, STYLES[reading.outcome])
            table.add_row(outcome, Text(one.name), Text(reading.objective), Text(reading.reading))
    console.print(table)
    for note in gate.notes:
        console.print(Text(f"  note: {note}"), soft_wrap=True)


def markdown(gate: Gate, folder: Path) -> str:
    """For a pull request or a step summary."""
    runs = sum(len(one.runs) for one in gate.experiments)
    lines = [f"## {gate.outcome.value}: gate {escape(gate.name)}", "", escape(gate.why), ""]
    lines += [f"**{escape(gate.reason)}**", "", f"{counted(runs, 'run')} in {gate.spent_s:.0f} s, {_where(gate)}", ""]
    lines += [f"> {escape(note)}\n" for note in gate.notes]
    lines += ["| outcome | experiment | objective | what was seen |", "|---|---|---|---|"]
    for one in gate.experiments:
        for reading in one.readings:
            cells = (reading.outcome.value, one.name, reading.objective, reading.reading)
            lines.append(f"| {' | '.join(map(escape, cells))} |")
    lines += ["", "| run | seed | outcome | seconds | why |", "|---|---|---|---|---|"]
    for one in gate.experiments:
        for run in one.runs:
            why = escape(run.reasons[0]) if run.reasons else ""
            lines.append(f"| {run.folder} | {run.seed} | {run.outcome.value} | {run.duration_s:.1f} | {why} |")
    for one, run in _telling(gate):
        told = _explained(folder / run.folder).replace("```", "'''")
        lines += ["", f"<details><summary>{one.name}, seed {run.seed}: what happened</summary>", ""]
        lines += ["```text", told, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def junit(gate: Gate, folder: Path) -> bytes:
    """One test case for each objective."""
    suites = ElementTree.Element("testsuites", name=gate.name)
    for one in gate.experiments:
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=one.name,
            timestamp=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(gate.began_wall_s)),
            time=f"{sum(run.duration_s for run in one.runs):.3f}",
        )
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in {**gate.stack, **gate.machine, "job": one.job, "version": one.version}.items():
            ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
        for reading in one.readings:
            _case(suite, reading, one, gate, folder)
    for element in (*suites, suites):
        for kind, plural in _PLURALS.items():
            element.set(plural, str(len(list(element.iter(kind)))))
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def _case(suite: ElementTree.Element, reading: Reading, one: GateExperiment, gate: Gate, folder: Path) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"{gate.name}.{one.name}", name=_clean(reading.objective), time="0"
    )
    if reading.outcome is Outcome.PASS:
        case.set("time", f"{sum(run.duration_s for run in one.runs):.3f}")
    elif reading.outcome is Outcome.UNKNOWN and gate.outcome is Outcome.FAIL:
        ElementTree.SubElement(case, "skipped", message=_clean(f"the gate had failed already: {reading.reading}"))
    else:
        kind = "failure" if reading.outcome is Outcome.FAIL else "error"
        told = ElementTree.SubElement(case, kind, message=_clean(reading.reading), type=reading.outcome.value)
        run = _telling_run(one)
        told.text = _clean("\n".join([gate.reason, *([_explained(folder / run.folder)] if run else [])]))
    lines = [f"{run.outcome.value} seed {run.seed} {run.duration_s:.1f} s {folder / run.folder}" for run in one.runs]
    ElementTree.SubElement(case, "system-out").text = _clean("\n".join([reading.reading, *lines]))


def _telling(gate: Gate) -> Iterator[tuple[GateExperiment, GateRun]]:
    """Of each experiment that is not passed, the run that tells why."""
    for one in gate.experiments:
        run = _telling_run(one)
        if run is not None and any(reading.outcome is not Outcome.PASS for reading in one.readings):
            yield one, run


def _telling_run(one: GateExperiment) -> GateRun | None:
    """The first run that failed, else one that proved nothing, else the last."""
    for outcome in (Outcome.FAIL, Outcome.UNKNOWN):
        for run in one.runs:
            if run.outcome is outcome:
                return run
    return one.runs[-1] if one.runs else None


def _explained(run_dir: Path) -> str:
    try:
        return f"{explain(run_dir).rstrip()}\n\nreport: {run_dir / page.NAME}"
    except BadInput as gone:
        return str(gone)


def _where(gate: Gate) -> str:
    stack = ", ".join(f"{name} {version}" for name, version in gate.stack.items())
    machine = ", ".join(f"{name} {value}" for name, value in gate.machine.items())
    against = f"; compared with {gate.baseline}" if gate.baseline else ""
    return f"with {stack}; on {machine}{against}"


def _clean(text: str) -> str:
    """Without characters that XML cannot hold."""
    return _NOT_XML.sub("", text)
