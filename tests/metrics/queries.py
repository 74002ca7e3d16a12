"""Every query of the dashboards and of the rules, as Prometheus is asked for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parents[2] / "dashboards"
DASHBOARDS = ("run", "gate", "fleet")


class Query(NamedTuple):
    """One query and where it stands. `labels`: the values of a label are asked for, and not a series."""

    where: str
    expr: str
    label: str | None = None


def dashboard(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def of_dashboard(name: str) -> Iterator[Query]:
    """Those of panels, annotations and variables, with everything chosen."""
    board = dashboard(name)
    for panel in _panels(board["panels"]):
        for target in panel["targets"]:
            yield Query(f"{name}: {panel['title']}", _chosen(target["expr"]))
    for annotation in board.get("annotations", {}).get("list", []):
        yield Query(f"{name}: annotation {annotation['name']}", _chosen(annotation["expr"]))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            series, label = variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            yield Query(f"{name}: variable {variable['name']}", _chosen(series), label)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    loaded: list[dict[str, Any]] = group["rules"]
    return loaded


def of_rules() -> Iterator[Query]:
    for rule in rules():
        yield Query(rule.get("record") or rule["alert"], rule["expr"])


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        if panel["type"] == "row":
            yield from _panels(panel["panels"])
        else:
            yield panel


def _chosen(expr: str) -> str:
    for variable in ("$job", "$experiment", "$gate"):
        expr = expr.replace(variable, ".*")
    assert "$" not in expr, expr
    return expr
