"""The command line for people: describe, recipes, and the errors of those who mistype."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import recipes, timers, workload
from training.__main__ import EXIT_BAD_INPUT, job_of, main, parser
from training.settings import Job, Settings, UserError

PLACEHOLDERS = {
    "python", "member", "incarnation", "address", "host", "host:controller", "host:lighthouse", "data_interface",
    "events", "scratch",
}  # fmt: skip


def described(*arguments: str, capsys: pytest.CaptureFixture[str]) -> workload.Workload:
    assert main(["describe", *arguments]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=workload.Workload)


def test_describe_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    work = described("--replicas", "2", "--min-replicas", "1", "--steps", "7", capsys=capsys)
    assert (work.version, work.recipe, work.replicas, work.min_replicas, work.steps) == (1, "cpu-debug", 2, 1, 7)
    assert {name: role.members for name, role in work.roles.items()} == {
        "lighthouse": ["lighthouse"],
        "controller": ["controller"],
        "replica": ["replica-0", "replica-1"],
        "leftover": ["leftover-0"],
    }
    assert [name for name, role in work.roles.items() if role.on_demand] == ["leftover"]


@pytest.mark.parametrize("recipe", recipes.RECIPES)
@pytest.mark.parametrize("place", ["member", "controller"])
def test_only_known_placeholders(recipe: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    work = described("--recipe", recipe, "--set", f"lighthouse={place}", capsys=capsys)
    words = [word for role in work.roles.values() for word in role.command]
    assert {found for word in words for found in re.findall(r"{([^}]*)}", word)} <= PLACEHOLDERS
    assert all(role.command[:3] == ["{python}", "-m", "training"] for role in work.roles.values())


def test_lighthouse_inside_the_controller(capsys: pytest.CaptureFixture[str]) -> None:
    work = described("--set", "lighthouse=controller", capsys=capsys)
    assert not work.roles.keys() & {"lighthouse", "leftover"}, "a stranger would not know where it is"
    assert "--lighthouse" not in work.roles["controller"].command


def test_stock_timers_leave_monarch_as_it_comes_but_for_orphans(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = described(capsys=capsys).env
    stock = described("--set", "monarch_timers=stock", "--set", "orphan_timeout_s=60", capsys=capsys).env
    assert "HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY" in tuned
    assert {name: value for name, value in stock.items() if name.startswith("HYPERACTOR")} == {
        "HYPERACTOR_MESH_ORPHAN_TIMEOUT": "60s"
    }


def test_describe_does_not_import_torch() -> None:
    code = "import sys; from training.__main__ import main; main(['describe'])"
    code += "; sys.stderr.write(str('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr.strip() == "False"


SETTINGS = st.builds(
    Settings,
    seed=st.integers(0, 2**31),
    heal=st.sampled_from(["cached", "stock", "stale_rate", "stale_weights", "off"]),
    schedule=st.sampled_from(["committed", "tries"]),
    init_sync=st.booleans(),
    non_finite=st.sampled_from(["discard", "commit"]),
    checkpoints=st.sampled_from(["own", "stock"]),
    digest_every=st.integers(0, 100),
    gradients_over=st.sampled_from(["rdma", ""]),
    learning_rate=st.floats(1e-6, 1.0),
    process_group_timeout_s=st.floats(3.5, 50.0),
    heartbeat_timeout_ms=st.integers(300, 10_000),
    profile=st.sampled_from(timers.PROFILES),
)


@pytest.mark.parametrize("recipe", recipes.RECIPES.values(), ids=lambda recipe: recipe.name)
def test_each_recipe_has_timers_in_order_and_upstream_as_it_comes(recipe: recipes.Recipe) -> None:
    timers.check(recipe.settings("tuned"))
    assert recipe.settings("tuned") == recipe.defaults
    upstream = recipe.settings("upstream")
    assert {name: getattr(upstream, name) for name in timers.TIMERS} == {
        name: timer.upstream for name, timer in timers.TIMERS.items()
    }
    with pytest.raises(UserError, match="join_timeout_ms"):
        timers.check(msgspec.structs.replace(upstream, profile="tuned"))


def test_a_single_value_is_set_on_top_of_a_profile() -> None:
    changes = ["heartbeat_timeout_ms=700", "profile=upstream"]
    job = recipes.make_job("cpu-debug", replicas=2, min_replicas=1, steps=1, seed=None, changes=changes)
    assert (job.settings.heartbeat_timeout_ms, job.settings.quorum_retries) == (700, 0)


@given(settings=SETTINGS, replicas=st.integers(1, 9), steps=st.integers(1, 10_000), data=st.data())
def test_members_get_the_job_that_was_described(
    settings: Settings, replicas: int, steps: int, data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, replicas))
    job = Job(recipe="cpu-debug", replicas=replicas, min_replicas=least, steps=steps, settings=settings)
    fill = re.compile(r"{[^}]*}")
    for name in ("controller", "lighthouse", "leftover"):
        command = [fill.sub("7", word) for word in workload.describe(job).roles[name].command]
        assert job_of(parser().parse_args(command[3:])) == job


MISTAKES = [
    (["describe", "--recipe", "cpu-debgu"], "did you mean 'cpu-debug'?"),
    (["describe", "--set", "digest_evry=2"], "did you mean 'digest_every'?"),
    (["describe", "--set", "heal"], "type --set heal=VALUE"),
    (["describe", "--set", "heal=fast"], "'fast'"),
    (["describe", "--set", "digest_every=-1"], "Expected `int` >= 0"),
    (["describe", "--set", "data=/a{b}"], "braces"),
    (["describe", "--set", "process_group_timeout_s=60"], "type --set quorum_timeout_s=360"),
    (["describe", "--set", "join_timeout_ms=90000"], "type --set quorum_timeout_s=540"),
    (["describe", "--set", "hang_s=5"], "type --set process_group_timeout_s=30"),
    (["describe", "--set", "profile=upsteam"], "'upsteam'"),
    (["describe", "--set", "quorum_tick_ms=900"], "type --set quorum_tick_ms=20"),
    (["describe", "--replicas", "0"], "type --replicas 3"),
    (["describe", "--replicas", "2", "--min-replicas", "3"], "type --min-replicas 2"),
    (["describe", "--steps", "0"], "type --steps 200"),
    (["describe", "--steps", "many"], "'many'"),
    (["describe", "--stepz", "9"], "--stepz"),
    (["worker"], "--name"),
    (["trian"], "'trian'"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_gives_one_line_and_its_remedy(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == EXIT_BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(recipes.RECIPES)
    assert main(["recipes"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*recipes.RECIPES, *Settings.__struct_fields__))


def test_a_gpu_recipe_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: path != "/dev/nvidiactl")
    with pytest.raises(UserError, match="type --recipe cpu-debug"):
        recipes.require_device("llama3-8b")
    recipes.require_device("cpu-debug")
