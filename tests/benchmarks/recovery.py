"""How fast a job recovers: for each profile and fault so many trials in one run, every phase of each.

    python -m tests.benchmarks.recovery [--profile NAME ...] [--fault NAME ...] [--trials 10] [--pause-s N] [--csv FILE]

Run by hand on a quiet machine, from the repository's root; the load is in each row. Profiles: `upstream`, `tuned`, and
`standby`, which is tuned with a stand-in built. A fault comes as often as trials are asked for, with a pause that lets
the victim come back. Prints median and 95th percentile in seconds; the CSV has a row for each trial, which
`recovery_plot` draws. A run in which a state or the history was damaged is told, and its times count for nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from chaos import journal
from chaos.check import PLAN, check
from chaos.model.events import MemberLost, TrainerLost
from chaos.model.history import History
from chaos.model.lives import Hit, Life
from chaos.model.past import Past
from chaos.model.plan import Plan
from chaos.model.recovery import survival, way_back
from chaos.model.verdict import Outcome

SETTINGS = {"upstream": {"profile": "upstream"}, "tuned": {}, "standby": {"respawn": "standby"}}
PAUSE_S = {"upstream": 120.0, "tuned": 45.0, "standby": 45.0}
FAULTS: dict[str, dict[str, object]] = {
    "pod.kill": {"target": {"role": "replica"}},
    "process.kill": {"target": {"role": "replica"}},
    "process.freeze": {"target": {"role": "replica"}, "for_s": 8},
    "nic.down data": {"target": {"role": "replica"}, "args": {"interface": "data"}, "for_s": 8},
    "nic.down control": {"target": {"role": "replica"}, "args": {"interface": "control"}, "for_s": 8},
    "network.partition": {"target": {"role": "replica"}, "for_s": 8},
    "node.down": {"target": {"role": "node", "member": "node-1"}, "for_s": 5},
    "lighthouse.kill": {"target": {"role": "lighthouse"}},
    "controller.kill": {"target": {"role": "controller"}},
}
SAFE = ("same_state", "history_kept", "one_quorum", "data_once", "gradients_scaled")
COLUMNS = (
    "known_s", "survivors_s", "stood_s", "failed_step_s", "requorum_s", "recovery_s", "respawn_s", "heal_s",
    "first_commit_s", "exit_s", "restart_s", "boot_s", "join_s", "heal_wait_s", "transfer_s",
)  # fmt: skip
SHOWN = COLUMNS[:9]
Row = dict[str, object]
Loss = MemberLost | TrainerLost
"""The controller's word that it knows."""


def experiment(fault: str, profile: str, trials: int, pause_s: float) -> dict[str, object]:
    """One run with all trials of a fault under a profile."""
    kind, one = fault.partition(" ")[0], FAULTS[fault]
    repeat = {"repeat": {"count": trials, "period_s": pause_s}} if trials > 1 else {}
    return {
        "name": f"recovery-{kind.replace('.', '-')}-{profile}",
        "why": "How fast is it back?",
        "workload": {
            "recipe": "cpu-debug", "replicas": 3, "min_replicas": 2, "steps": 1_000_000,
            "settings": {"digest_every": 1, **SETTINGS[profile]},
        },
        "topology": {"nodes": 2, "restart": "always"},
        "faults": [{"fault": kind, "at": {"step": 12}, **one, **repeat}],
        "baseline": {"steps": 8, "timeout_s": 300},
        "quiesce": {"common_steps": 10, "timeout_s": 300},
        "disturb_timeout_s": trials * pause_s * 3 + 300,
        "monitors": dict.fromkeys(("fault_in_force", *SAFE)),
        "seed": 1,
    }  # fmt: skip


def run(what: dict[str, object], runs: Path) -> Path:
    """Run it; gives its folder."""
    runs.mkdir(parents=True, exist_ok=True)
    file = runs / f"{what['name']}.yaml"
    file.write_bytes(msgspec.yaml.encode(what))
    before = set(runs.iterdir())
    subprocess.run([sys.executable, "-m", "chaos", "run", str(file), "--runs", str(runs)], check=False)
    (folder,) = (path for path in runs.iterdir() if path not in before and path.is_dir())
    return folder


def rows(folder: Path) -> Iterator[Row]:
    """A row for each hit of a stored run."""
    plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)
    history = History(plan.topology)
    losses: list[Loss] = []
    for event in journal.Reading(folder / journal.NAME).events():
        history.apply(event)
        if isinstance(event, Loss):
            losses.append(event)
    unsafe = [one.monitor for one in check(folder).findings if one.monitor in SAFE and one.outcome is Outcome.FAIL]
    hits = sorted(history.past.hits, key=lambda hit: hit.t_s)
    ends_s = [*(hit.t_s for hit in hits[1:]), history.now_s]
    for hit, end_s in zip(hits, ends_s, strict=False):
        decided_s = hit.proofs[0].decided_s
        known_s = next((loss.t_s for loss in losses if loss.name == hit.member and loss.t_s >= decided_s), None)
        yield {
            "victim": hit.member,
            "unsafe": " ".join(unsafe),
            "known_s": None if known_s is None else max(0.0, known_s - hit.t_s),
            **measured(hit, end_s, history.past, plan.replicas()),
        }


def measured(hit: Hit, end_s: float, past: Past, replicas: tuple[str, ...]) -> dict[str, float | None]:
    """The phases of one trial. `survivors_s` is until the last of the others has committed again, which may be a step
    that was nearly done; `stood_s` the longest that one of them was without a commit before the next trial.
    """
    others = [name for name in replicas if name != hit.member]
    commits = [past.timeline(name).split(hit.t_s)[1] for name in others]
    last_s = max((commit.t_s for commit in commits if commit), default=hit.t_s)
    signs = survival(others, hit.proofs[0], last_s, past)
    phases: dict[str, float | None] = {}
    if hit.member in replicas:
        back_s = past.back_s(hit)
        back = next((way_back(hit, *found) for found in past.commits_after(hit) if found[1].t_s >= back_s), None)
        phases = back.phases() if back else {}
    return {
        "survivors_s": last_s - hit.t_s if all(commits) else None,
        "stood_s": max(longest_gap_s(past.lives[name], hit.t_s, end_s) for name in others),
        "failed_step_s": signs.failed_step_s,
        "requorum_s": signs.requorum_s,
        **phases,
    }


def longest_gap_s(lives: Sequence[Life], since_s: float, until_s: float) -> float:
    """Between two commits of a member, of which the later one is of this time."""
    times_s = sorted(commit.t_s for life in lives for commit in life.commits_within(0.0, until_s))
    return max((later - one for one, later in pairwise(times_s) if later >= since_s), default=0.0)


def table(found: list[Row]) -> Iterator[str]:
    """Median and 95th percentile by profile and fault, of the trials that were safe."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in found:
        groups[str(row["profile"]), str(row["fault"])].append(row)
    yield f"{'profile':10}{'fault':18}{'n':>3}  " + "".join(f"{name[:-2]:>16}" for name in SHOWN)
    for (profile, fault), group in groups.items():
        safe = [row for row in group if not row["unsafe"]]
        cells = [spread([float(str(row[name])) for row in safe if row.get(name) is not None]) for name in SHOWN]
        yield f"{profile:10}{fault:18}{len(safe):3}  " + "".join(f"{cell:>16}" for cell in cells)
        if len(safe) < len(group):
            yield f"  unsafe: {group[0]['unsafe']}"


def spread(values: list[float]) -> str:
    if not values:
        return "-"
    high = sorted(values)[min(len(values) - 1, round(0.95 * len(values)))]
    return f"{statistics.median(values):.2f} / {high:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--fault", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--pause-s", type=float, help="between two trials, longer than any victim is away")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    found: list[Row] = []
    for profile in args.profile:
        for fault in args.fault:
            pause_s = args.pause_s or PAUSE_S[profile]
            folder = run(experiment(fault, profile, args.trials, pause_s), args.runs)
            load = os.getloadavg()[1]
            found += [{"profile": profile, "fault": fault, "load": load, **row} for row in rows(folder)]
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, ("profile", "fault", "load", "victim", "unsafe", *COLUMNS))
            writer.writeheader()
            writer.writerows(found)
    for line in table(found):
        print(line)


if __name__ == "__main__":
    main()
