"""A real job on local pods, whose replicas cannot reach each other for a while. Slow."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chaos import journal
from chaos.load import load
from chaos.model.events import TrainerLost
from chaos.model.verdict import Verdict
from chaos.plan import plan
from tests.conftest import Chaos, lacking

CUT_S = 8
RUN_S_MAX = 240.0


def test_the_others_go_on_without_one_that_is_cut_off_which_is_back_when_it_reaches_them(
    chaos: Chaos, tmp_path: Path
) -> None:
    if missing := lacking(plan(load("network-partition"))):
        pytest.skip(f"this machine lacks {', '.join(sorted(missing))}")
    done = chaos("run", "network-partition", "--set", f"faults.0.for_s={CUT_S}", timeout_s=RUN_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    verdict = msgspec.json.decode((folder / "verdict.json").read_bytes(), type=Verdict)
    measures = {finding.monitor: finding.measures for finding in verdict.findings}
    gap_s = measures["survivors_continue"]["gap_s"]
    assert isinstance(gap_s, float) and gap_s < CUT_S, done.stdout
    lost = [one for one in journal.Reading(folder / journal.NAME).events() if isinstance(one, TrainerLost)]
    assert (lost[0].name, lost[0].reason) == ("replica-2", "cut_off")
