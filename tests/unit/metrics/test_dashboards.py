"""What is generated and checked in is what the code makes, and it asks for nothing that does not exist."""

from __future__ import annotations

import re

import pytest

from chaos.metrics.fold import Metrics
from dashboards.__main__ import made
from tests.metrics import queries

METRIC = re.compile(r"(?<![\w:])torchchaos_\w+")
RECORDED = re.compile(r"\b\w+:torchchaos_\w+:\w+")


def known() -> set[str]:
    names = set()
    for row in Metrics().families.table:
        parts = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
        names |= {f"{row.name}{part}" for part in parts}
    return names


def asked() -> list[queries.Query]:
    return [query for name in queries.DASHBOARDS for query in queries.of_dashboard(name)]


def test_what_is_checked_in_is_what_the_code_makes() -> None:
    for path, text in made().items():
        assert path.read_text() == text, f"{path.name} is not up to date: run `python -m dashboards`"


def test_queries_ask_for_metrics_that_exist() -> None:
    for query in (*asked(), *queries.of_rules()):
        names = set(METRIC.findall(query.expr))
        assert names <= known(), query
        assert names or RECORDED.search(query.expr), query


def test_queries_ask_for_rules_that_exist() -> None:
    recorded = {rule["record"] for rule in queries.rules() if "record" in rule}
    for query in (*asked(), *queries.of_rules()):
        assert set(RECORDED.findall(query.expr)) <= recorded, query


def test_every_metric_is_asked_for() -> None:
    """What no panel and no rule shows would be documented and never seen."""
    exprs = " ".join(query.expr for query in (*asked(), *queries.of_rules()))
    for row in Metrics().families.table:
        assert re.search(rf"{row.name}\b|{row.name}_(bucket|sum|count)\b", exprs), row.name


@pytest.mark.parametrize("name", queries.DASHBOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    board = queries.dashboard(name)
    assert {variable["name"] for variable in board["templating"]["list"]} >= {"datasource", "job"}
    panels = [panel for row in board["panels"] for panel in row.get("panels", []) or [row]]
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    assert len(titles) == len(set(titles))
    for panel in panels:
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
            assert [target["refId"] for target in panel["targets"]] == sorted({t["refId"] for t in panel["targets"]})
    assert not overlapping(panels)


def overlapping(panels: list[dict]) -> list[tuple[str, str]]:
    def covers(panel: dict) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}

    return [
        (one["title"], other["title"])
        for index, one in enumerate(panels)
        for other in panels[index + 1 :]
        if covers(one) & covers(other)
    ]


def test_faults_are_annotations_of_a_run() -> None:
    (annotation,) = queries.dashboard("run")["annotations"]["list"]
    assert "torchchaos_fault_active" in annotation["expr"]
    assert annotation["titleFormat"] == "{{fault}}"
