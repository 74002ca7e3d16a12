"""One run, live: who trains, what the faults do, how long recovery takes, and the injector itself."""

from __future__ import annotations

from typing import Any

from dashboards.panels import (
    EXPERIMENT,
    JOB,
    OF,
    Ask,
    Panel,
    bars,
    board,
    coded,
    faults,
    graph,
    lanes,
    listing,
    numbers,
    outcome,
    verdicts,
)

LANE = "{{experiment}} {{replica}}"
ACTIVITIES = {
    "down": (0, "red"),
    "starting": (1, "yellow"),
    "waiting": (2, "orange"),
    "healing": (3, "purple"),
    "training": (4, "green"),
    "finished": (5, "gray"),
}
PHASES = {
    "deploy": (1, "gray"),
    "baseline": (2, "blue"),
    "disturb": (3, "red"),
    "quiesce": (4, "yellow"),
    "drain": (5, "gray"),
}
ALIVE = {"dead": (0, "red"), "alive": (1, "green")}
AWAY = {"here": (0, "green"), "away": (1, "red")}


def dashboard() -> dict[str, Any]:
    made = board(
        "torchchaos-run",
        "torchchaos: run",
        "A run while it goes on: replicas as lanes, training, recovery by its phases, and the injector itself.",
        {
            "Verdict": _verdict(),
            "Lanes": _lanes(),
            "Training": _training(),
            "Recovery": _recovery(),
            "Injector": _injector(),
            "Findings": _findings(),
        },
        JOB,
        EXPERIMENT,
    )
    made["annotations"] = {"list": [faults(OF)]}
    return made


def _verdict() -> list[Panel]:
    return [
        verdicts(
            "Verdict",
            "The newest verdict of each experiment.",
            Ask(outcome("torchchaos_run_outcome", OF, "experiment"), "{{experiment}}"),
        ),
        numbers(
            "Step",
            "The highest step that any replica committed.",
            "none",
            Ask(f"max by (experiment) (torchchaos_step{{{OF}}})", "{{experiment}}"),
        ),
        numbers(
            "Safety",
            "Safety properties that broke while a run went on.",
            "none",
            Ask(f"sum by (experiment) (torchchaos_safety_broken_total{{{OF}}})", "{{experiment}}"),
        ),
        numbers(
            "Left behind",
            "Injections that were not proven undone; `chaos clean` removes what is left on a machine.",
            "none",
            Ask(f"sum by (experiment) (torchchaos_leftover_faults{{{OF}}})", "{{experiment}}"),
        ),
    ]


def _lanes() -> list[Panel]:
    return [
        lanes(
            "Phase",
            "Nothing is injected before the baseline is reached.",
            PHASES,
            Ask(
                coded(f"torchchaos_run_phase{{{OF}, {{state}}}}", _numbers(PHASES), "phase", "experiment"),
                "{{experiment}}",
            ),
        ),
        lanes(
            "Replicas",
            "What each replica is doing.",
            ACTIVITIES,
            Ask(
                coded(
                    f"torchchaos_replica_activity{{{OF}, {{state}}}}",
                    _numbers(ACTIVITIES),
                    "activity",
                    "experiment, replica",
                ),
                LANE,
            ),
        ),
        lanes(
            "Members",
            "Who lives, the control plane among them.",
            ALIVE,
            Ask(f"max by (experiment, member) (torchchaos_member_alive{{{OF}}})", "{{experiment}} {{member}}"),
            width=12,
        ),
        lanes(
            "Taken out by a fault",
            "From the hit until the replica commits with a peer again.",
            AWAY,
            Ask(f"max by (experiment, replica) (torchchaos_replica_away{{{OF}}})", LANE),
            width=12,
        ),
    ]


def _training() -> list[Panel]:
    return [
        graph(
            "Steps committed",
            "Of the replica that commits most.",
            "ops",
            Ask(f"job_experiment:torchchaos_steps:rate1m{{{OF}}}", "{{experiment}}"),
        ),
        graph(
            "Steps discarded",
            "Tries in vain.",
            "none",
            Ask(f'sum by (experiment, replica) (torchchaos_steps_total{{{OF}, result="discarded"}})', LANE),
        ),
        graph(
            "Tokens per second",
            "Of all replicas, in committed steps.",
            "none",
            Ask(f"job_experiment:torchchaos_tokens:rate1m{{{OF}}}", "{{experiment}}"),
        ),
        graph(
            "Loss",
            "Of each replica's newest step.",
            "none",
            Ask(f"max by (experiment, replica) (torchchaos_loss{{{OF}}})", LANE),
        ),
        graph(
            "Participants",
            "Replicas that contribute, as each was told last.",
            "none",
            Ask(f"max by (experiment, replica) (torchchaos_participants{{{OF}}})", LANE),
        ),
        graph(
            "Bytes by path",
            "What each replica's newest life moved over RDMA and over net devices, where its platform tells.",
            "bytes",
            Ask(f"max by (experiment, replica, path) (torchchaos_carried_bytes{{{OF}}})", f"{LANE} {{{{path}}}}"),
        ),
        graph(
            "Quorum",
            "Each replica's quorum id; lines that stay apart are two groups.",
            "none",
            Ask(f"max by (experiment, replica) (torchchaos_quorum_id{{{OF}}})", LANE),
        ),
        graph(
            "Quorum changes and heals",
            "Of all replicas since the exporter began.",
            "none",
            Ask(f"sum by (experiment) (torchchaos_quorum_changes_total{{{OF}}})", "{{experiment}} changes"),
            Ask(f"sum by (experiment) (torchchaos_heals_total{{{OF}}})", "{{experiment}} heals"),
        ),
        graph(
            "State digests",
            "Steps at which states of replicas were compared, and at which they differed.",
            "none",
            Ask(f"sum by (experiment) (torchchaos_digests_compared_total{{{OF}}})", "{{experiment}} compared"),
            Ask(f"sum by (experiment) (torchchaos_digest_mismatches_total{{{OF}}})", "{{experiment}} differed"),
        ),
        graph(
            "Goodput",
            "Of the run so far: step efficiency, effective training time, tokens against those before a fault.",
            "percentunit",
            Ask(f"max by (experiment, measure) (torchchaos_goodput_ratio{{{OF}}})", "{{experiment}} {{measure}}"),
        ),
        graph(
            "Replica-seconds lost",
            "Around faults and at other times; times the GPUs of a replica these are GPU-seconds.",
            "s",
            Ask(
                f"max by (experiment, cause) (torchchaos_lost_replica_seconds{{{OF}}})",
                "{{experiment}} {{cause}}",
            ),
        ),
    ]


def _recovery() -> list[Panel]:
    return [
        bars(
            "A victim's way back",
            "Mean seconds of each phase; `recovery` is the whole.",
            "s",
            Ask(_mean("torchchaos_recovery_seconds"), "{{experiment}} {{phase}}"),
        ),
        bars(
            "Survivors",
            "Mean seconds from a fault in force to the failed step, the new quorum, the next commits.",
            "s",
            Ask(_mean("torchchaos_survivor_wait_seconds"), "{{experiment}} {{phase}}"),
        ),
        graph(
            "Survivors without a commit",
            "How long the survivor that waits longest has waited; an alert fires at 30 s.",
            "s",
            Ask(f"job_experiment:torchchaos_survivor_idle_seconds:max{{{OF}}}", "{{experiment}}"),
        ),
        graph(
            "Recovery, 90th percentile",
            "Of all runs since the exporter began, by fault.",
            "s",
            Ask(
                f'job_experiment_fault_phase:torchchaos_recovery_seconds:p90{{{OF}, phase="recovery"}}',
                "{{experiment}} {{fault}}",
            ),
        ),
    ]


def _injector() -> list[Panel]:
    return [
        graph(
            "Held injections",
            "Proven in force and not yet proven undone.",
            "none",
            Ask(
                f"sum by (experiment, fault, target) (torchchaos_injections_held{{{OF}}})",
                "{{experiment}} {{fault}} on {{target}}",
            ),
        ),
        graph(
            "Faults",
            "Made, missed, not proven in force, ended out of order.",
            "none",
            *(
                Ask(f"sum by (experiment) (torchchaos_{name}_total{{{OF}}})", f"{{{{experiment}}}} {said}")
                for name, said in (
                    ("faults_started", "made"),
                    ("faults_missed", "missed"),
                    ("injections_failed", "not in force"),
                    ("reverts_failed", "out of order"),
                )
            ),
        ),
        graph(
            "Latency of proofs, 90th percentile",
            "From the decision until the kernel was read back.",
            "s",
            Ask(_latency("torchchaos_injection_latency_seconds", 0.9), "{{fault}} in force"),
            Ask(_latency("torchchaos_revert_latency_seconds", 0.9), "{{fault}} undone"),
        ),
        graph(
            "Blind windows",
            "Events of members that were lost: what happened then is not known.",
            "none",
            Ask(
                f"sum by (experiment, member) (torchchaos_blind_windows_total{{{OF}}})",
                "{{experiment}} {{member}}",
            ),
        ),
    ]


def _findings() -> list[Panel]:
    return [
        listing("Findings", "What every monitor said of the newest run.", Ask(f"torchchaos_finding{{{OF}}} == 1", "")),
        listing("Runs", "Where the newest run of each experiment is.", Ask(f"torchchaos_run_info{{{OF}}}", "")),
    ]


def _numbers(states: dict[str, tuple[int, str]]) -> dict[str, int]:
    return {word: number for word, (number, _) in states.items()}


def _mean(metric: str) -> str:
    by = "sum by (experiment, phase)"
    return f"{by} ({metric}_sum{{{OF}}}) / ({by} ({metric}_count{{{OF}}}) > 0)"


def _latency(metric: str, share: float) -> str:
    return f"histogram_quantile({share}, sum by (fault, le) ({metric}_bucket{{{OF}}}))"
