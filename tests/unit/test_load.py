"""Experiments load strictly: every mistake is one error that names the value, the reason and what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.load import KNOWN_BUGS, load, shipped
from chaos.model.errors import BadInput
from chaos.model.topology import Restart

GOOD = """
name: good
why: It happens.
workload: {program: toyjob, recipe: toy, replicas: 3, min_replicas: 2, steps: 100}
faults:
  - {fault: pod.kill, target: {role: replica}, at: {step: 20}}
monitors: {progress: {stall_s_max: 5}}
"""
EXPECT = "{outcome: %s, reference: somewhere}"


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_good_experiment_loads(write):
    experiment = load(write(GOOD))
    assert experiment.workload.replicas == 3
    assert experiment.faults[0].at.step == 20
    assert experiment.topology.restart is Restart.ALWAYS


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_load_by_name(name):
    assert load(name).name == name.rpartition("/")[2]
    assert (load(name).expect is not None) == name.startswith(KNOWN_BUGS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("steps: 100", "stepps: 100"), "`workload`: unknown key 'stepps'; did you mean 'steps'?"),
        (("{role: replica}", "{rol: replica}"), "`faults.0.target`: unknown key 'rol'; did you mean 'role'?"),
        (("why: It happens.", ""), "the key 'why' is missing; add `why: ...`"),
        (("pod.kill", "pod.kil"), "faults.0: unknown fault 'pod.kil'; did you mean 'pod.kill'?"),
        (("progress:", "progres:"), "unknown monitor 'progres'; did you mean 'progress'?"),
        (("stall_s_max", "stall_max"), "monitors.progress: unknown key 'stall_max'; did you mean 'stall_s_max'?"),
        (("min_replicas: 2", "min_replicas: 4"), "min_replicas is 4, more than workload.replicas 3"),
        (("step: 20", "step: 100"), "faults.0.at.step is 100, but the job's last step is 100"),
        (("step: 20", "step: 2"), "faults.0.at.step is 2, inside the baseline of 5 steps"),
        (("{step: 20}", "{step: 20, seconds: 3}"), "needs exactly one of step, seconds, event, point"),
        (("{step: 20}", "{}"), "needs exactly one of step, seconds, event, point"),
        (("replicas: 3", "replicas: zero"), "`workload.replicas`: 'zero' does not fit: expected `int`"),
        (("replicas: 3", "replicas: 0"), "`workload.replicas`: 0 does not fit: expected `int` >= 1"),
        (("at: {step: 20}", "at: {step: 20}, repeat: {count: 2}"), "needs exactly one of period_s and mtbf_s"),
        (("at: {step: 20}", "at: {event: heal_start}"), "'heal_start' is not known; did you mean 'heal_started'?"),
        (("name: good", "name: Not Good"), "`name`: 'Not Good' does not fit"),
        (("name: good", "name: good\nname: better"), "line 3: the key 'name' stands twice"),
        (("steps: 100", "steps: 12"), "workload.steps is 12, fewer than baseline.steps + quiesce.common_steps = 15"),
        (("at: {step: 20}", "at: {step: 20}, args: {grace: 3}"), "faults.0.args: unknown key 'grace'"),
        (("name: good", f"name: good\nexpect: {EXPECT % 'FAIL, by: [progres]'}"), "'progres' does not judge this"),
        (("name: good", f"name: good\nexpect: {EXPECT % 'PASS, by: [progress]'}"), "expect.outcome is PASS"),
        (("name: good", f"name: good\nexpect: {EXPECT % 'FAIL, by: []'}"), "does not fit: expected `array` of length"),
        (
            ("name: good", f"name: good\nexpect: {EXPECT % 'fail, by: [progress]'}"),
            "'fail' is not known; known are: FAIL",
        ),
    ],
)
def test_each_mistake_is_one_clear_error(write, change, message):
    assert change[0] in GOOD
    with pytest.raises(BadInput) as caught:
        load(write(GOOD.replace(*change)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_near_miss_of_an_enum_is_named(write):
    with pytest.raises(BadInput, match=r"`topology\.restart`: 'nevr' is not known; did you mean 'never'"):
        load(write(GOOD + "topology: {restart: nevr}\n"))


@pytest.mark.parametrize("text", ["", "- a list", "just words", "a: [", "\t"])
def test_a_file_that_is_no_experiment_is_refused(write, text):
    with pytest.raises(BadInput):
        load(write(text))


def test_an_unknown_name_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no experiment is called 'replica-los'; did you mean 'replica-lost'"):
        load("replica-los")
    with pytest.raises(BadInput, match=r"No such file.*chaos list"):
        load(str(tmp_path / "absent.yaml"))


def test_overrides_replace_and_add_values(write):
    experiment = load(write(GOOD), ["topology.restart=never", "faults.0.at={seconds: 2}", "seed=7"])
    assert experiment.topology.restart is Restart.NEVER
    assert experiment.faults[0].at.seconds == 2
    assert experiment.seed == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "is not key=value"),
        ("=3", "is not key=value"),
        ("topology.restrat=never", "unknown key 'restrat'; did you mean 'restart'"),
        ("faults.1.at={step: 9}", "'1' is no place in a list of 1; count from 0"),
        ("name.first=x", "'name' holds 'good', which has no keys"),
        ("seed=[", "is not a YAML value"),
    ],
)
def test_bad_overrides_are_refused(write, override, message):
    with pytest.raises(BadInput) as caught:
        load(write(GOOD), [override])
    assert message in str(caught.value)
