"""What the machine is said to be able to do, and that asking leaves nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from chaos.platforms.local import doctor, sweep
from chaos.platforms.local.platform import LocalPlatform


def test_every_check_says_what_was_found_and_what_to_do() -> None:
    before = socket.if_nameindex(), Path("/proc/self/mountinfo").read_text(), sweep.find()
    checks = {check.name: check for check in doctor.probe()}
    assert (socket.if_nameindex(), Path("/proc/self/mountinfo").read_text(), sweep.find()) == before
    assert {"namespaces", "user-namespaces", "cgroups", "links", "netem", "nft", "memory", "training"} <= set(checks)
    for check in checks.values():
        assert check.found and check.meaning
    assert checks["namespaces"].ok is ("namespaces" in doctor.available())


def test_the_best_isolation_is_taken() -> None:
    assert doctor.available()[-1] == "processes", "plain processes work everywhere"
    assert LocalPlatform().isolation() == doctor.isolation() == doctor.available()[0]


def test_a_wrong_or_refused_isolation_is_the_users_mistake() -> None:
    with pytest.raises(ValueError, match="did you mean 'namespaces'"):
        LocalPlatform("namespace")
    if "namespaces" not in doctor.available():
        with pytest.raises(ValueError, match="'namespaces' does not work here"):
            LocalPlatform("namespaces")


def test_capabilities_grow_with_the_isolation() -> None:
    plain = doctor.capabilities("processes")
    assert plain == {"launch", "moves", "nodes"}, "plain processes can be started, killed and moved, and nothing more"
    if os.geteuid() == 0 and "namespaces" in doctor.available():
        assert plain < doctor.capabilities("namespaces")
