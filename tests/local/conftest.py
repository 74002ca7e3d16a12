"""Fixtures of the local platform's tests: every isolation that this machine allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # Tests here share `clusters`.

from chaos.platforms.local import doctor


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def _param(isolation: str) -> object:
    refusal = doctor.refusal(isolation)
    skip = pytest.mark.skip(reason=f"{isolation} does not work here: {refusal}")
    return pytest.param(isolation, marks=[skip] if refusal else [])


@pytest.fixture(params=[_param(name) for name in doctor.ISOLATIONS])
def isolation(request: pytest.FixtureRequest) -> str:
    """Each isolation in turn; skipped where the machine refuses it."""
    return str(request.param)


@pytest.fixture(scope="module", params=[_param(name) for name in doctor.ISOLATIONS if name != "processes"])
def separate(request: pytest.FixtureRequest) -> str:
    """Each isolation with namespaces."""
    return str(request.param)
