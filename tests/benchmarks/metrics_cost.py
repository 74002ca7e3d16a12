"""What metrics cost a run: processor time of each event, beside that of the journal's line and of the monitors.

    python -m tests.benchmarks.metrics_cost [--events 100000] [--replicas 16]

Run by hand on a quiet machine, from the repository's root. Each event is taken in as a live run does it: encoded and
written, judged by all monitors, then counted. Prints microseconds for each event, and milliseconds for one scrape.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from chaos.check import Judges
from chaos.journal import NAME, Journal
from chaos.metrics.fold import Metrics
from chaos.model.events import AnyEvent
from chaos.registry import monitors
from tests.benchmarks.check_speed import long_run
from tests.unit.monitors.journals import jittered


def cost_us(events: list[AnyEvent], take: Callable[[AnyEvent], object]) -> float:
    began_s = time.process_time()
    for event in events:
        take(event)
    return (time.process_time() - began_s) / len(events) * 1e6


def scrape_ms(metrics: Metrics) -> tuple[float, int]:
    began_s = time.process_time()
    text = metrics.text()
    return (time.process_time() - began_s) * 1e3, len(text.splitlines())


def both(judges: Judges, watch: Callable[..., None]) -> Callable[[AnyEvent], None]:
    def take(event: AnyEvent) -> None:
        judges.observe(event)
        watch(event, judges.history)

    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=16)
    args = parser.parse_args()
    story = long_run(args.events, args.replicas)
    experiment = msgspec.structs.replace(story.plan.experiment, monitors=dict.fromkeys(monitors()))
    plan = msgspec.structs.replace(story.plan, experiment=experiment)
    events: Iterable[AnyEvent] = jittered(story.journal(), seed=1, late_s_max=0.05)  # type: ignore[assignment]
    told, metrics = list(events), Metrics()
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / NAME) as journal:
        journal_us = cost_us(told, journal.record)
    judged_us = cost_us(told, Judges(plan).observe)
    counted_us = cost_us(told, both(Judges(plan), metrics.begin(plan, "a-run")))
    took_ms, lines = scrape_ms(metrics)
    print(f"{'events':>9} {'journal us':>11} {'monitors us':>12} {'metrics us':>11} {'scrape ms':>10} {'lines':>7}")
    print(
        f"{len(told):9} {journal_us:11.2f} {judged_us:12.2f} {counted_us - judged_us:11.2f} {took_ms:10.1f} {lines:7}"
    )


if __name__ == "__main__":
    main()
