"""The pytest plugin, as somebody's repository would use it: pytest in a folder of its own, with the toy job."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import pytest

from chaos import journal
from chaos.model.events import MemberStarted, RunStarted

T = TypeVar("T")

TESTS = """
import pytest

TOY = {"workload.program": "toyjob", "workload.recipe": "toy", "workload.steps": 4000, "quiesce.common_steps": 10}
BROKEN = TOY | {"workload.settings": {"defect": "healed_state_differs"}}
NO_FAULT = TOY | {"faults.0.at": {"event": "heal_ended"}, "disturb_timeout_s": 1}


@pytest.mark.chaos_experiment("replica-lost", set=TOY, seed=2)
def test_good(chaos_experiment):
    assert chaos_experiment.measures["replicas_rejoin.recovery_s"] > 0
    assert chaos_experiment.report.is_file()


@pytest.mark.chaos_experiment("replica-lost", set=TOY)
def test_slow(chaos_experiment):
    assert chaos_experiment.measures["replicas_rejoin.recovery_s"] < 0


@pytest.mark.chaos_experiment("replica-lost", set=BROKEN)
def test_broken():
    raise AssertionError("the body is not reached")


@pytest.mark.chaos_experiment("replica-lost", set=NO_FAULT)
def test_no_fault():
    raise AssertionError("the body is not reached")


@pytest.mark.chaos_experiment("replica-los")
def test_typo():
    pass


def test_no_marker(chaos_experiment):
    pass
"""


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["alone", "xdist"])
def repository(request, tmp_path_factory, chaos_env) -> Path:
    """The folder of somebody's tests, after they ran."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "test_recovery.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--junit-xml", "junit.xml", "--strict-markers", *request.param]
    done = subprocess.run(command, cwd=folder, env=chaos_env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


@pytest.fixture
def outcomes(repository) -> dict[str, ElementTree.Element]:
    """What pytest's own JUnit file says of each test."""
    cases = ElementTree.parse(repository / "junit.xml").iter("testcase")
    return {case.attrib["name"]: case for case in cases}


def told(case: ElementTree.Element) -> tuple[str, str]:
    (child,) = [one for one in case if one.tag in ("failure", "error")]
    return child.tag, child.text or ""


def test_a_job_that_keeps_its_promises_passes_and_its_numbers_can_be_asserted(outcomes):
    assert not list(outcomes["test_good"])
    kind, text = told(outcomes["test_slow"])
    assert kind == "failure"
    assert "recovery_s" in text


def test_a_job_that_broke_is_a_failure_with_the_account_and_the_report(outcomes):
    kind, text = told(outcomes["test_broken"])
    assert kind == "failure"
    assert text.startswith("FAIL: replica-lost")
    assert "same_state FAIL" in text
    (report,) = [line.removeprefix("report: ") for line in text.splitlines() if line.startswith("report: ")]
    assert Path(report).is_file() and report.endswith("report.html")
    assert "Traceback" not in text


def test_a_fault_that_did_not_strike_is_an_error(outcomes):
    kind, text = told(outcomes["test_no_fault"])
    assert kind == "error"
    assert "ExperimentProvedNothing" in text
    assert "UNKNOWN: replica-lost" in text


def test_what_cannot_be_run_is_an_error_in_the_words_of_chaos_run(outcomes):
    kind, text = told(outcomes["test_typo"])
    assert kind == "error"
    assert "did you mean 'replica-lost'?" in text
    kind, text = told(outcomes["test_no_marker"])
    assert kind == "error"
    assert '@pytest.mark.chaos_experiment("replica-lost"' in text


def test_experiments_wait_for_one_another(repository):
    spans = []
    for path in repository.glob("runs/*/journal.jsonl"):
        *_, last = events = list(journal.Reading(path).events())
        begun = events[0]
        assert isinstance(begun, RunStarted)
        spans.append((begun.wall_s, begun.wall_s + last.t_s - begun.t_s))
    spans.sort()
    assert len(spans) == 4
    assert all(one[1] <= later[0] for one, later in itertools.pairwise(spans))


LONG = """
import pytest

LONG = {"workload.program": "toyjob", "workload.recipe": "toy", "workload.steps": 90000, "quiesce.common_steps": 80000}


@pytest.mark.chaos_experiment("steady", set=LONG)
def test_long():
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_tests_that_are_ended_leave_no_job_behind(tmp_path, chaos_env, number):
    (tmp_path / "test_long.py").write_text(LONG)
    command = [sys.executable, "-m", "pytest", "test_long.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=chaos_env, stdout=subprocess.DEVNULL) as tests:
        try:
            journal_file = until(lambda: next(tmp_path.glob("runs/*/journal.jsonl"), None))
            until(lambda: '"phase":"quiesce"' in journal_file.read_text())
            tests.send_signal(number)
            tests.wait(60)
        finally:
            tests.kill()
    pids = [one.pid for one in journal.Reading(journal_file).events() if isinstance(one, MemberStarted)]
    assert len(pids) == 5
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    ended = '"reason":"interrupted"' in journal_file.read_text()
    assert ended == (number == signal.SIGINT)


def until(seen: Callable[[], T | None]) -> T:
    """What is seen at last; bounded."""
    end_mono_s = time.monotonic() + 120
    while time.monotonic() < end_mono_s:
        if found := seen():
            return found
        time.sleep(0.05)
    pytest.fail("not seen within 120 s")
