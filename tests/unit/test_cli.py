"""The command line: bad input is one line and exit code 64, and nothing is left; the rest tells the truth."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "replica-los"], "no experiment is called 'replica-los'; did you mean 'replica-lost'?"),
        (["run", "replica-lost", "--set", "workload.min_replicas=4"], "more than workload.replicas 3"),
        (["run", "replica-lost", "--set", "faults.0.at.step=9999"], "the job's last step is 400"),
        (["run", "replica-lost", "--set", "faults.0.fault=pod.kil"], "did you mean 'pod.kill'?"),
        (["run", "replica-lost", *TOY, "--set", "faults.0.target.role=node"], "role 'node' cannot be hit by pod.kill"),
        (["run", "replica-lost", *TOY, "--isolation", "jail"], "'jail'"),
        (["run", "replica-lost", *TOY, "--runs", "/proc/runs"], "/proc/runs cannot hold runs"),
        (["run", "--sead", "3", "steady"], "No such option"),
        (["runn"], "No such command 'runn'"),
        (["check", "absent"], "absent is not the folder of a run"),
        (["check", "/etc/hostname"], "/etc/hostname is not the folder of a run"),
        (["run"], "Missing argument 'EXPERIMENT'"),
    ],
)
def test_bad_input_is_one_line_and_64(chaos, tmp_path, args, message):
    done = chaos(*args)
    assert done.returncode == 64, done
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.json*"))


def test_dry_run_and_plan_show_targets_and_times_and_start_nothing(chaos, tmp_path):
    dry, planned = chaos("run", "replica-lost", *TOY, "--dry-run"), chaos("plan", "replica-lost", *TOY)
    assert dry.returncode == planned.returncode == 0
    assert dry.stdout == planned.stdout
    assert "pod.kill on replica-" in dry.stdout
    assert "after step 12" in dry.stdout
    assert "node-0: replica-0, replica-2" in dry.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_of_the_same_name_is_refused(chaos, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    stat = runs.stat()
    with socket.socket(socket.AF_UNIX) as claim:
        claim.bind(f"\0torchchaos/{stat.st_dev}/{stat.st_ino}/steady")
        done = chaos("run", "steady", *TOY)
        assert done.returncode == 64
        assert "a run of 'steady' is going on" in done.stderr
    assert list(runs.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_no_free_disk_is_the_machines_fault(tmp_path, chaos_env):
    (tmp_path / "small").mkdir()
    script = (
        "import ctypes, os, sys\n"
        f"libc = ctypes.CDLL(None)\nassert libc.unshare({0x00020000}) == 0\n"
        "assert libc.mount(b'none', b'/', None, 0x44000, None) == 0\n"
        "assert libc.mount(b'tmpfs', b'small', b'tmpfs', 0, b'size=1m') == 0\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    from pathlib import Path

    chaos = Path(sys.executable).with_name("chaos")
    done = subprocess.run(
        [sys.executable, "-c", script, chaos, "run", "steady", *TOY, "--runs", "small"],
        cwd=tmp_path,
        env=chaos_env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done
    assert "1 MiB free, a run needs 64 MiB; free some disk" in done.stderr
    assert list((tmp_path / "small").iterdir()) == []


def test_list_names_everything_with_a_reason(chaos):
    done = chaos("list")
    assert done.returncode == 0
    for name in ("replica-lost", "steady", "pod.kill", "process.kill", "same_state", "replicas_rejoin"):
        assert name in done.stdout


def test_faults_tells_arguments_needs_and_where_they_work(chaos):
    done = chaos("faults")
    assert done.returncode == 0
    assert "rate_mbit_s: 200.0  (number from 0.1 to 32,000)" in done.stdout
    assert "needs links, nft; works here " in done.stdout
    told = json.loads(chaos("faults", "--json").stdout)
    (delay,) = [entry for entry in told if entry["name"] == "network.delay"]
    assert delay["needs"] == ["links", "netem"]
    assert delay["schema"]["$defs"]["NetworkDelay"]["properties"]["delay_ms"]["maximum"] == 1000


@pytest.mark.parametrize("experiment", ["heal-kill-donor", "storm", "pod-kill"])
def test_a_plan_says_what_is_known_beforehand(chaos, experiment):
    done = chaos("plan", experiment)
    assert done.returncode == 0, done.stderr
    assert ("on 1 donor at the point in_serve" in done.stdout) is (experiment == "heal-kill-donor")


def test_help_names_the_exit_codes(chaos):
    done = chaos("--help")
    assert done.returncode == 0
    assert "64 bad input" in done.stdout


def test_doctor_says_what_is_possible_here(chaos):
    done = chaos("doctor")
    assert done.returncode == 0
    assert "pods here: " in done.stdout


def test_clean_finds_nothing_on_a_clean_machine(chaos):
    done = chaos("clean")
    assert (done.returncode, done.stdout.strip()) == (0, "nothing was left behind")
