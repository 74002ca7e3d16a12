"""The verdict in words: on the console, and as the Markdown report of a run."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from chaos.model.plan import Plan, PlannedFault
from chaos.model.verdict import Outcome, Verdict
from chaos.model.wording import counted
from chaos.report.record import Record

NAME = "report.md"

STYLES = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red", Outcome.UNKNOWN: "bold yellow"}


def print_plan(plan: Plan, console: Console) -> None:
    """Where members live, what will be hit, and when."""
    experiment = plan.experiment
    lines = [f"{experiment.name}: {experiment.why}", ""]
    for node in plan.topology.nodes():
        here = [member for member in plan.topology.on(node) if member in plan.members()]
        lines.append(f"  {node}: {', '.join(here)}")
    lines += ["", f"  baseline: {experiment.baseline.steps} steps committed by every replica"]
    lines += [f"  {fault.fault} on {_whom(fault)} {_when(fault)}" for fault in plan.faults]
    lines += [] if plan.faults else ["  no fault"]
    lines += [f"  quiesce: {experiment.quiesce.common_steps} more steps committed by every replica", ""]
    lines += [f"  judged by: {', '.join(experiment.monitors)}; seed {experiment.seed}"]
    if (expect := experiment.expect) is not None:
        lines += [f"  expected: {expect.outcome.value} by {' or '.join(expect.by)} ({expect.reference})"]
    for line in lines:
        _say(console, line)


def print_verdict(verdict: Verdict, console: Console) -> None:
    """The outcome first, then every monitor's reading."""
    console.print(Text.assemble((verdict.outcome.value, STYLES[verdict.outcome]), f"  {_title(verdict)}"))
    if verdict.expectation is not None:
        _say(console, f"  {verdict.expectation.reading}")
    width = max((len(finding.monitor) for finding in verdict.findings), default=0)
    for finding in verdict.findings:
        mark = Text(f"  {finding.outcome.value:7} ", STYLES[finding.outcome])
        reading = finding.reading.replace("\n", f"\n{'':{width + 12}}")
        console.print(mark.append(f"{finding.monitor:{width}}  {reading}", "default"), soft_wrap=True)
    readings = {f"{finding.monitor}: {finding.reading}" for finding in verdict.findings}
    for reason in verdict.reasons:
        if reason not in readings:
            _say(console, f"  because {reason}")


def markdown(record: Record) -> str:
    """The report: verdict and reasons first, then what happened, the findings with their numbers, and the events."""
    plan, verdict, account = record.plan, record.verdict, record.account
    lines = [f"# {verdict.outcome.value}: {_title(verdict)}", "", plan.experiment.why, "", account.gist(), ""]
    lines += [] if verdict.expectation is None else [f"**{escape(verdict.expectation.reading)}**", ""]
    lines += [f"- {': '.join(filter(None, [', '.join(who), escape(said)]))}" for who, said in record.reasons]
    lines += ["", "| seconds | what happened |", "|---|---|"]
    lines += [f"| {line.t_s:.1f} | {escape(line.text)} |" for line in account.story()]
    if unusual := list(account.unusual()):
        lines += ["", "What was unusual:", "", *(f"- {escape(line)}" for line in unusual)]
    lines += ["", "| monitor | outcome | reading | evidence |", "|---|---|---|---|"]
    for finding in record.findings:
        evidence = ", ".join(map(str, record.evidence(finding)))
        lines.append(f"| {finding.monitor} | {finding.outcome.value} | {escape(finding.reading)} | {evidence} |")
    lines += ["", "| monitor | measure | value |", "|---|---|---|"]
    for finding in record.findings:
        lines += [f"| {finding.monitor} | {name} | {number(value)} |" for name, value in finding.measures.items()]
    lines += ["", "| event | seconds | what happened |", "|---|---|---|"]
    lines += [f"| {row.seq} | {row.t_s:.2f} | {escape(row.text)} |" for row in record.rows]
    if record.news_unsaid:
        lines += ["", f"{counted(record.news_unsaid, 'more piece')} of news in `journal.jsonl`."]
    return "\n".join(lines) + "\n"


def _title(verdict: Verdict) -> str:
    return f"{verdict.experiment} (isolation: {verdict.isolation or 'unknown'})"


def _whom(fault: PlannedFault) -> str:
    """The targets; for a role of the moment, the role."""
    return ", ".join(fault.targets) or f"{fault.hits} {fault.role}"


def _when(fault: PlannedFault) -> str:
    """When a fault comes, and for how long."""
    at = fault.at
    if at.step is not None:
        when = f"after step {at.step}"
    elif at.seconds is not None:
        when = f"{at.seconds:g} s after the baseline"
    else:
        when = f"at the next {at.event.value}" if at.event else f"at the point {at.point.value if at.point else ''}"
    later = f" and {fault.after_s:.0f} s" if fault.after_s else ""
    return f"{when}{later}" + (f", for {fault.for_s:g} s" if fault.for_s else "")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def number(value: float | int | str | None) -> str:
    """A measure as it is shown."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def escape(text: str) -> str:
    """The text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
