"""The report of a run or of a gate as one HTML file: no network, no script, small enough to lie in every folder.

    page.render(record.read(run_dir))

Lanes and curves are plain HTML and SVG by a template. A drawing library would bring megabytes of script into each
file, which cannot be printed and may not be opened where scripts are refused; without any script, nothing that a run
wrote can become one. Links from findings to events are anchors, and what they land on is marked by the browser itself.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from chaos.model.errors import BadInput
from chaos.model.gate import Gate
from chaos.model.wording import counted, span
from chaos.report import summary
from chaos.report.bars import PARTS, Bar
from chaos.report.lanes import STATES
from chaos.report.record import Record, read

NAME = "report.html"
GATE = "gate.html"


@functools.cache
def environment() -> Environment:
    """The templates. Whatever is put into one is escaped."""
    made = Environment(
        loader=PackageLoader("chaos.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["seconds"] = span
    made.globals["counted"] = counted
    made.globals["when"] = _when
    made.filters["number"] = summary.number
    return made


def render(record: Record) -> str:
    """The page."""
    bars, total = record.bars()
    return (
        environment()
        .get_template("report.html")
        .render(
            record=record,
            verdict=record.verdict,
            plan=record.plan,
            chart=record.watch.chart(record.history.past),
            states=STATES,
            story=record.account.story(),
            unusual=list(record.account.unusual()),
            bars=bars,
            bars_total=total,
            parts=parts_of(bars),
            facts=facts(record),
        )
    )


def render_gate(gate: Gate, at: str = "") -> str:
    """The page of a gate, with links to its runs' reports; `at` is its place on a server, which has others, too."""
    return environment().get_template("gate.html").render(gate=gate, at=at)


def parts_of(bars: list[Bar]) -> dict[str, str]:
    """The words of those parts that the bars have."""
    shown = {part.name for bar in bars for part in bar.parts}
    return {name: words for name, words in PARTS.items() if name in shown}


def facts(record: Record) -> dict[str, Any]:
    """What was run, where, and with which software."""
    plan, begun = record.plan, record.begun
    workload = plan.workload
    told: dict[str, Any] = {
        "job": f"{workload.recipe}, {workload.replicas} replicas, at least {workload.min_replicas} in a quorum",
        "seed": plan.experiment.seed,
        "judged by": ", ".join(finding.monitor for finding in record.verdict.findings),
    }
    if begun:
        told["began"] = _when(begun.wall_s)
        told["platform"] = f"{begun.platform}, isolation: {begun.isolation}"
        told["versions"] = ", ".join(f"{name} {version}" for name, version in begun.versions.items())
    return {name: value for name, value in told.items() if value != ""}


def write(run_dir: Path, record: Record | None = None) -> None:
    """Write both reports into the folder of a run. Raises BadInput when it holds none, or takes none."""
    record = record or read(run_dir)
    for name, text in ((summary.NAME, summary.markdown(record)), (NAME, render(record))):
        try:
            (run_dir / name).write_text(text)
        except OSError as error:
            remedy = f"free it and type: chaos report {run_dir}"
            raise BadInput(f"{run_dir / name} cannot be written: {error.strerror}; {remedy}") from None


def _when(wall_s: float | None) -> str:
    return "" if wall_s is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall_s))
