"""Makes what is checked in here: `python -m dashboards` writes the dashboards and the table of metrics in README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from chaos.metrics.fold import Metrics
from dashboards import fleet, gate, run

HERE = Path(__file__).parent
TABLE = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- end -->)", re.DOTALL)


def made() -> dict[Path, str]:
    """Every generated file with its content."""
    files = {
        HERE / f"{name}.json": json.dumps(made_by(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
        for name, made_by in (("run", run.dashboard), ("gate", gate.dashboard), ("fleet", fleet.dashboard))
    }
    readme = HERE / "README.md"
    files[readme] = TABLE.sub(lambda _: _table(), readme.read_text())
    return files


def _table() -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for row in Metrics().families.table:
        lines.append(f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text)
