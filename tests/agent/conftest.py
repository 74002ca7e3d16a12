"""One agent and one pod of each kind for all tests; who may not make namespaces is told so."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.agent import stock_kernel
from tests.agent.grounds import POD, Grounds
from tests.agent.pods import Agent, Pod, refused, started_agent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if stock_kernel.VM:
        stock_kernel.add_twins(config, items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if stock_kernel.RESULTS in os.environ:
        stock_kernel.write(report)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if refused() and not isinstance(item, stock_kernel.Twin):
        pytest.skip(f"needs {refused()}")


@pytest.fixture(scope="session")
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and cgroups")


@pytest.fixture(scope="session")
def shared_agent(root: None) -> Iterator[Agent]:
    with started_agent() as agent:
        yield agent


@pytest.fixture
def agent(shared_agent: Agent) -> Iterator[Agent]:
    """An agent that holds nothing, before and after."""
    assert not shared_agent.status()
    yield shared_agent
    for lease in shared_agent.status():
        shared_agent.release(lease)
    assert not shared_agent.status() and not shared_agent.entries()


@pytest.fixture(scope="session")
def shared_grounds(root: None) -> Iterator[Grounds]:
    with Grounds() as grounds:
        yield grounds


@pytest.fixture
def grounds(shared_grounds: Grounds, agent: Agent) -> Grounds:
    """Pods to disturb, not to kill; set up before the agent's clean-up and torn down after it."""
    return shared_grounds


@pytest.fixture
def pod(grounds: Grounds) -> Pod:
    return grounds[POD]
