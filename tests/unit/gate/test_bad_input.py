"""What a gate refuses before the first run: one line that says what to type, and exit code 64."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from suites import MACHINE, RECOVERY, STACK, suite

from chaos.gate import baseline as baselines
from chaos.gate import course
from chaos.gate.baseline import Baseline, Measured
from chaos.gate.suite import read, shipped
from chaos.model.errors import BadInput
from chaos.plan import plan

MEDIAN = {"measure": RECOVERY, "percentile": 50, "at_most": 10, "worse_by_max": 1.5}
TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy")


@pytest.mark.parametrize("name", shipped())
def test_shipped_suites_can_be_decided(name):
    assert read(name).spec.name == name


@pytest.mark.parametrize("name", shipped())
def test_shipped_suites_draw_no_fault_that_safety_cannot_survive(name):
    """A weight that is flipped is seen as states that differ, and fails any gate."""
    for entry in read(name).entries:
        for seed in range(entry.seed, entry.seed + entry.runs):
            planned = plan(msgspec.structs.replace(entry.experiment, seed=seed))
            assert "weights.bitflip" not in {fault.fault for fault in planned.faults}, (entry.name, seed)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"at_least": 1}, "needs either rate or measure"),
        ({"rate": "verdict", "measure": RECOVERY, "at_least": 1}, "needs either rate or measure"),
        ({"rate": "verdict"}, "a rate is at_least a share"),
        ({"rate": "verdict", "at_least": 2}, "a rate is at_least a share"),
        ({"rate": "verdict", "at_least": 1, "percentile": 50}, "remove them"),
        ({"measure": RECOVERY, "at_most": 3}, "type percentile: 50"),
        ({"measure": RECOVERY, "percentile": 50}, "either at_most or at_least"),
        ({"measure": "replica_rejoin.recovery_s", "percentile": 50, "at_most": 3}, "did you mean 'replicas_rejoin'?"),
        ({"measure": "goodput", "percentile": 50, "at_least": 0.5}, "'goodput' names no measure"),
        ({"rate": "finite_loss", "at_least": 1}, "'finite_loss' does not judge replica-lost"),
        ({"measure": RECOVERY, "percentile": 90, "at_most": 3}, "5 runs can never tell"),
        ({"rate": "replicas_rejoin", "at_least": 0.9}, "type runs: 22 or more"),
        ({"percentil": 50}, "did you mean 'percentile'?"),
    ],
)
def test_objectives_that_nothing_could_answer(tmp_path, objective, message):
    with pytest.raises(BadInput) as refused:
        suite(tmp_path, objective)
    assert message in str(refused.value)


def test_more_objectives_that_may_err_need_more_runs(tmp_path):
    """They share the gate's risk of a false alarm."""
    medians = [MEDIAN | {"at_most": limit} for limit in (1, 2, 3, 4)]
    assert suite(tmp_path, *medians[:3])
    with pytest.raises(BadInput, match="5 runs can never tell"):
        suite(tmp_path, *medians)


def test_two_entries_need_two_names(tmp_path):
    entries = [{"experiment": "steady", "runs": 1}] * 2
    with pytest.raises(BadInput, match="two experiments are called 'steady'"):
        suite(tmp_path, experiments=entries)
    assert suite(tmp_path, experiments=[entries[0], entries[1] | {"name": "again"}]).entries[1].name == "again"


def test_an_experiment_is_looked_for_beside_the_suite_and_overrides_apply(tmp_path):
    data = {
        "name": "own",
        "why": "A test.",
        "workload": {"recipe": "toy", "replicas": 2, "min_replicas": 1, "steps": 90},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data | {"monitors": {"progress": None}}))
    entry = {"experiment": "own.yaml", "runs": 1, "set": {"quiesce.common_steps": 7}}
    (only,) = suite(tmp_path, experiments=[entry]).entries
    assert (only.name, only.experiment.quiesce.common_steps) == ("own", 7)


def test_the_version_of_an_experiment_is_what_is_done_to_the_job_and_not_the_job(tmp_path):
    def version(**values) -> str:
        return (
            suite(tmp_path, experiments=[{"experiment": "replica-lost", "runs": 1, "set": values}]).entries[0].version
        )

    assert version(**{"workload.settings": {"heartbeat_timeout_ms": 9}, "seed": 9, "why": "else"}) == version()
    for changed in ({"faults.0.at.step": 13}, {"workload.replicas": 4}, {"monitors.goodput": {"ettr_min": 0.5}}):
        assert version(**changed) != version()


def baseline(tmp_path, version: str, values: int = 5, duration_s: float = 10.0):
    measured = Measured(version, "", (duration_s,) * 5, {RECOVERY: (4.0,) * values})
    file = tmp_path / "baseline.json"
    file.write_bytes(msgspec.json.encode(Baseline("a-gate", "", STACK, MACHINE, {"replica-lost": measured})))
    return file


def test_baselines_that_cannot_be_compared_with(tmp_path):
    asked = suite(tmp_path, MEDIAN)
    version = asked.entries[0].version
    assert baselines.read(baseline(tmp_path, version), asked, 100)
    (tmp_path / "no.json").write_text("{}")
    for file, message in (
        (tmp_path / "absent.json", "No such file or directory; record one with: chaos gate"),
        (tmp_path / "no.json", "cannot be read: Object missing required field"),
        (baseline(tmp_path, "old"), "is of another version of replica-lost: old, now"),
    ):
        with pytest.raises(BadInput) as refused:
            baselines.read(file, asked, 100)
        assert message in str(refused.value)
        assert "--update-baseline" in str(refused.value)
    with pytest.raises(BadInput, match="has 1 values of replicas_rejoin"):
        baselines.read(baseline(tmp_path, version, values=1), asked, 100)
    with pytest.raises(BadInput, match=r"the budget of 100 s is too small.*200 s.*type --budget-s 240"):
        baselines.read(baseline(tmp_path, version, duration_s=40), asked, 100)


def test_a_folder_that_is_no_gates(tmp_path):
    with pytest.raises(BadInput, match=r"is not the folder of a gate"):
        course.stored(tmp_path)
    (tmp_path / "gate.json").write_text("{}")
    with pytest.raises(BadInput, match=r"gate.json cannot be read"):
        course.stored(tmp_path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["smok"], "no gate is called 'smok'; did you mean 'smoke'?"),
        (["absent.yaml"], "absent.yaml: No such file or directory"),
        (["smoke", *TOY, "--baseline", "absent.json"], "the baseline absent.json: No such file or directory"),
        (["smoke", *TOY, "--junit", "new.xml", "--baseline", "absent.json"], "the baseline absent.json: No such file"),
        (["smoke", *TOY, "--update-baseline"], "type --baseline FILE as well"),
        (["smoke", *TOY, "--junit", "/proc/x/junit.xml"], "/proc/x/junit.xml cannot be written"),
        (["smoke", *TOY, "--markdown", "."], ". cannot be written: Is a directory"),
        (["smoke", *TOY, "--runs", "/proc/runs"], "/proc/runs cannot hold runs"),
        (["smoke", *TOY, "--resume", "absent"], "absent is not the folder of a gate"),
        (["smoke", *TOY, "--budget-s", "0"], "Input should be greater than or equal to 1"),
        (["smoke", *TOY, "--set", "faults.0.fault=pod.kil"], "did you mean 'pod.kill'?"),
    ],
)
def test_bad_input_is_one_line_and_64(chaos, tmp_path, args, message):
    done = chaos("gate", *args)
    assert done.returncode == 64, done
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
