"""The dashboards fit what Grafana says of itself: its models in Python, and the types that it publishes for TypeScript.

The types are not ours to bring along. To have the dashboards checked against them:

    npm install --prefix FOLDER @grafana/schema@10.4 typescript@5
    TORCHCHAOS_GRAFANA_SCHEMA=FOLDER python -m pytest tests/metrics/test_grafana_schema.py
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.metrics import queries

OF_PROMETHEUS = {"expr", "step", "tagKeys", "textFormat", "titleFormat"}
"""What an annotation has because its data source is Prometheus; that is no part of a dashboard's schema."""
RAW = "@grafana/schema/dist/esm/raw"
PLAIN = """
type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? {[K in keyof T]?: Plain<T[K]>} : T;
"""
"""Of an enumeration, the texts that stand for it in JSON. Parts are optional: Grafana fills them in."""


def board(name: str) -> dict[str, Any]:
    """A dashboard without what is beyond its schema."""
    data = queries.dashboard(name)
    for annotation in data.get("annotations", {}).get("list", []):
        for key in OF_PROMETHEUS:
            del annotation[key]
    del data["id"]
    return data


def lost(before: Any, after: Any, where: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after[key], f"{where}.{key}") if key in after else (f"{where}.{key}",)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{where}.{index}")
    elif before != after:
        yield where


@pytest.mark.parametrize("name", queries.DASHBOARDS)
def test_grafanas_models_read_a_dashboard_and_lose_nothing(name: str) -> None:
    plugins.register_default_plugins()
    before = board(name)
    after = json.loads(json.dumps(Dashboard.from_json(before), cls=JSONEncoder))
    assert list(lost(before, after, name)) == []


def typed(data: dict[str, Any], types: Path) -> str:
    """A program that compiles if each part of the dashboard has the type that Grafana publishes for it."""

    def module(part: str, folder: str) -> str:
        (file,) = (types / RAW / folder).glob("*_types.gen.d.ts")
        return f"import type * as {part} from '{RAW}/{folder}/{file.name.removesuffix('.d.ts')}';"

    panels = [panel for panel in data["panels"] if panel["type"] != "row"]
    kinds = sorted({panel["type"].replace("-", "") for panel in panels})
    lines = [PLAIN, module("dashboard", "dashboard/x"), module("prometheus", "composable/prometheus/dataquery/x")]
    lines += [module(kind, f"composable/{kind}/panelcfg/x") for kind in kinds]
    checked = [({**data, "panels": []}, "dashboard.Dashboard")]
    checked += [(panel, "dashboard.RowPanel") for panel in data["panels"] if panel["type"] == "row"]
    for panel in panels:
        kind = panel["type"].replace("-", "")
        checked.append(({**panel, "options": {}, "targets": []}, "dashboard.Panel"))
        checked.append((panel["options"], f"{kind}.Options"))
        if custom := panel["fieldConfig"]["defaults"].get("custom"):
            checked.append((custom, f"{kind}.FieldConfig"))
        checked += [(target, "prometheus.PrometheusDataQuery") for target in panel["targets"]]
    lines += [f"void ({json.dumps(part)} satisfies Plain<{type_}>);" for part, type_ in checked]
    return "\n".join(lines)


@pytest.mark.skipif("TORCHCHAOS_GRAFANA_SCHEMA" not in os.environ, reason="TORCHCHAOS_GRAFANA_SCHEMA names no folder")
@pytest.mark.parametrize("name", queries.DASHBOARDS)
def test_a_dashboard_has_the_types_that_grafana_publishes(name: str, tmp_path: Path) -> None:
    modules = Path(os.environ["TORCHCHAOS_GRAFANA_SCHEMA"], "node_modules").resolve()
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "board.ts").write_text(typed(board(name), modules))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "node", "--target", "es2020"]
    command = [modules / ".bin" / "tsc", *options, "board.ts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
