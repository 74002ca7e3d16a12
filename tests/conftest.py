"""What several parts of the test suite share: the `chaos` program as a person types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from chaos.model.plan import Plan
from chaos.platforms.local import doctor

# A shell that started us in the background had us ignore Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about the machine than about us.
settings.register_profile("torchchaos", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("torchchaos")

JOBS = Path(__file__).parent / "jobs"
CHAOS = Path(sys.executable).with_name("chaos")

Chaos = Callable[..., subprocess.CompletedProcess[str]]


def lacking(planned: Plan) -> set[str]:
    """What an experiment needs that neither local pods on this machine nor its job have."""
    needed = {need for fault in planned.faults for need in fault.needs}
    return needed - doctor.capabilities(doctor.isolation()) - set(planned.workload.capabilities)


@pytest.fixture(scope="session")
def chaos_env() -> dict[str, str]:
    """The environment in which `chaos` finds the torch-free job of `tests/jobs`."""
    path = os.pathsep.join(filter(None, [str(JOBS), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture
def chaos(tmp_path: Path, chaos_env: dict[str, str]) -> Chaos:
    """Run `chaos ARGS` in an empty folder and give back what it printed and its exit status."""

    def chaos(*args: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CHAOS, *args],
            cwd=tmp_path,
            env=chaos_env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )

    return chaos
