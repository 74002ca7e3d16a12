"""A real Prometheus scrapes a real run and a real gate: no metric, panel or rule is without something to show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from chaos.metrics.fold import Metrics
from tests.conftest import CHAOS
from tests.metrics import prometheus, queries
from tests.metrics.prometheus import Prometheus

RUN_S_MAX = 240
EXPERIMENT = {
    "name": "two-faults",
    "why": "A replica is lost and another one stands still, so that everything that metrics tell of happens once.",
    "workload": {"program": "toyjob", "recipe": "toy", "replicas": 3, "min_replicas": 2, "steps": 4000},
    "topology": {"nodes": 2},
    "faults": [
        {"fault": "pod.kill", "target": {"role": "replica", "member": "replica-1"}, "at": {"step": 30}},
        {"fault": "process.freeze", "target": {"role": "replica", "count": 1}, "at": {"seconds": 6}, "for_s": 3},
    ],
    "quiesce": {"common_steps": 50},
    "monitors": {
        "survivors_continue": None, "replicas_rejoin": None, "same_state": None, "one_quorum": None, "goodput": None,
    },
}  # fmt: skip
SUITE = {
    "name": "toy",
    "why": "A gate that is over soon.",
    "budget_s": 120,
    "confidence": 0.6,
    "experiments": [
        {
            "experiment": "replica-lost",
            "runs": 2,
            "objectives": [{"measure": "replicas_rejoin.recovery_s", "percentile": 50, "at_most": 60}],
        }
    ],
}
TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")


class Scraped(NamedTuple):
    """The server after it scraped a run and a gate, and their folders."""

    prometheus: Prometheus
    run: Path
    gate: Path


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, chaos_env: dict[str, str]) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("scraped")
    (folder / "two-faults.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    (folder / "toy.yaml").write_text(yaml.safe_dump(SUITE))
    of_run, of_gate = prometheus.free_port(), prometheus.free_port()

    def chaos(*args: str) -> None:
        done = subprocess.run(
            [CHAOS, *args], cwd=folder, env=chaos_env, capture_output=True, text=True, timeout=RUN_S_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr

    with prometheus.running([of_run, of_gate]) as server:
        chaos("run", "two-faults.yaml", "--metrics", f":{of_run}")
        chaos("gate", "toy.yaml", *TOY, "--metrics", f":{of_gate}")
        (run,), (gate,) = (folder / "runs").glob("*-two-faults"), (folder / "runs").glob("*-gate-toy")
        yield Scraped(server, run, gate)


@pytest.mark.parametrize(
    "name", [f"{row.name}{'_bucket' * (row.kind == 'histogram')}" for row in Metrics().families.table]
)
def test_every_metric_has_samples(scraped: Scraped, name: str) -> None:
    assert scraped.prometheus.series(name)


@pytest.mark.parametrize("name", queries.DASHBOARDS)
def test_every_query_of_a_dashboard_returns_data(scraped: Scraped, name: str) -> None:
    empty = []
    for query in queries.of_dashboard(name):
        if query.label is None:
            found: list[Any] = [value for one in scraped.prometheus.over_time(query.expr) for _, value in one["values"]]
        else:
            found = scraped.prometheus.values_of(query.label, query.expr)
        if not [value for value in found if value != "NaN"]:
            empty.append(query)
    assert not empty


@pytest.mark.parametrize("rule", [rule["record"] for rule in queries.rules() if "record" in rule])
def test_every_recording_rule_records(scraped: Scraped, rule: str) -> None:
    values = [value for one in scraped.prometheus.over_time(rule) for _, value in one["values"]]
    assert [value for value in values if value != "NaN"]


def test_a_sound_run_and_gate_raise_no_alarm(scraped: Scraped) -> None:
    alerts = {rule["alert"] for rule in queries.rules() if "alert" in rule}
    loaded = scraped.prometheus.get("/api/v1/rules")["groups"]
    assert alerts == {rule["name"] for group in loaded for rule in group["rules"] if rule["type"] == "alerting"}
    assert [one["metric"] for one in scraped.prometheus.over_time('ALERTS{alertstate="firing"}')] == []


def test_the_last_word_was_scraped(scraped: Scraped) -> None:
    for match in (
        'torchchaos_run_outcome{experiment="two-faults", outcome="PASS"}',
        'torchchaos_gate_outcome{gate="toy", outcome="PASS"}',
    ):
        (series,) = scraped.prometheus.over_time(f"last_over_time({match}[10m])")
        assert series["values"][-1][1] == "1"


def test_scraped_and_from_the_journal_the_numbers_are_the_same(scraped: Scraped, chaos_env: dict[str, str]) -> None:
    done = subprocess.run(
        [CHAOS, "metrics", str(scraped.run)], env=chaos_env, capture_output=True, text=True, timeout=RUN_S_MAX
    )
    stored = {}
    for line in done.stdout.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            stored[name] = float(value)
    newest = scraped.prometheus.over_time('last_over_time({__name__=~"torchchaos_.+", experiment="two-faults"}[10m])')
    seen = {_written(one["metric"]): float(one["values"][-1][1]) for one in newest}
    assert len(stored) > 400
    assert seen == pytest.approx(stored, rel=1e-12)


def _written(metric: dict[str, str]) -> str:
    labels = {label: value for label, value in metric.items() if label not in ("__name__", "job", "instance")}
    if "le" in labels:
        labels["le"] = labels["le"] if labels["le"] == "+Inf" else str(float(labels["le"]))
    return metric["__name__"] + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels.items())) + "}"


def test_names_and_help_please_promtool(scraped: Scraped, chaos_env: dict[str, str]) -> None:
    text = subprocess.run(
        [CHAOS, "metrics", str(scraped.run), str(scraped.gate)], env=chaos_env, capture_output=True, timeout=RUN_S_MAX
    )
    linted = subprocess.run(
        [prometheus.needed("promtool"), "check", "metrics"], input=text.stdout, capture_output=True, timeout=RUN_S_MAX
    )
    assert (linted.returncode, linted.stderr) == (0, b"")


def promtool(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [prometheus.needed("promtool"), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX)


def test_the_rules_are_sound() -> None:
    assert promtool(queries.FOLDER, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml").returncode == 0
    done = promtool(queries.FOLDER, "test", "rules", "rules_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", range(len(queries.rules())))
def test_no_rule_goes_unproven(tmp_path: Path, number: int) -> None:
    """The proofs fail for a rule that never says anything."""
    shutil.copy(queries.FOLDER / "rules_test.yaml", tmp_path)
    rules = yaml.safe_load((queries.FOLDER / "rules.yaml").read_text())
    rules["groups"][0]["rules"][number]["expr"] = "vector(1) < 0"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    done = promtool(tmp_path, "test", "rules", "rules_test.yaml")
    assert done.returncode == 1
    assert "FAILED" in done.stderr
