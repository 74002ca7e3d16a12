"""Pages in a real Chromium: the system's, driven by playwright, which downloads none. Skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chaos.check import VERDICT, check
from chaos.report import page
from tests.golden import recorded
from tests.golden.recorded import lay_out

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REMEDY = "no Chromium here; type: apt-get install -y --no-install-recommends chromium"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """While it is open an event loop runs in this thread, so no test of another module may meet it."""
    if CHROMIUM is None:
        pytest.skip(REMEDY)
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; see pyproject.toml")
    with playwright.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that passed, one of many faults, and one that was cut off."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("replica-lost", "toy-storm"):
        _finish(lay_out(recorded.load(name), root / f"20261129-190000-{name}"))
    cut = recorded.load("process-freeze")
    folder = lay_out(cut, root / "20261129-200000-process-freeze")
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    _finish(folder)
    return root


def _finish(run_dir: Path) -> None:
    (run_dir / VERDICT).write_bytes(msgspec.json.encode(check(run_dir)))
    page.write(run_dir)


@pytest.fixture
def screenshots() -> Path | None:
    """Where pictures are kept, if anybody wants them."""
    wanted = os.environ.get("TORCHCHAOS_SCREENSHOTS")
    if wanted is None:
        return None
    Path(wanted).mkdir(parents=True, exist_ok=True)
    return Path(wanted)
