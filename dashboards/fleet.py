"""All experiments of all jobs at a glance: did they end as they should, what did it cost, what is going on now."""

from __future__ import annotations

from typing import Any

from dashboards.panels import (
    EXPERIMENT,
    JOB,
    OF,
    OUTCOMES,
    Ask,
    Panel,
    bars,
    board,
    graph,
    lanes,
    listing,
    numbers,
    outcome,
)

OF_EACH = "{{job}} {{experiment}}"


def dashboard() -> dict[str, Any]:
    return board(
        "torchchaos-fleet",
        "torchchaos: fleet",
        "Every experiment of every job: whether it ended as it should, what it cost, what is going on now.",
        {"Now": _now(), "Experiments": _experiments(), "Recovery": _recovery(), "Jobs": _jobs()},
        JOB,
        EXPERIMENT,
    )


def _now() -> list[Panel]:
    return [
        numbers(
            "Runs going on",
            "Of all jobs.",
            "none",
            Ask(f"sum(torchchaos_run_active{{{OF}}})", "runs"),
        ),
        numbers(
            "As they should",
            "Experiments whose newest run was PASS, or a known bug as expected.",
            "percentunit",
            Ask(f"avg(torchchaos_run_success{{{OF}}})", "experiments"),
        ),
        numbers(
            "Active faults",
            "From their start until nothing is held and their victims are back.",
            "none",
            Ask(f"sum(torchchaos_fault_active{{{OF}}})", "faults"),
        ),
        numbers(
            "Left behind",
            "Injections that were not proven undone.",
            "none",
            Ask(f"sum(torchchaos_leftover_faults{{{OF}}})", "injections"),
        ),
    ]


def _experiments() -> list[Panel]:
    return [
        lanes(
            "Verdicts",
            "The newest verdict of each experiment.",
            OUTCOMES,
            Ask(outcome("torchchaos_run_outcome", OF, "job, experiment"), OF_EACH),
        ),
        graph(
            "Verdicts by outcome",
            "Since the exporter began.",
            "none",
            Ask(f"sum by (outcome) (torchchaos_runs_total{{{OF}}})", "{{outcome}}"),
        ),
        listing(
            "What failed",
            "Findings of the newest runs that are no PASS, and how many of them.",
            Ask(
                f'sum by (job, experiment, monitor, outcome) (torchchaos_finding{{{OF}, outcome!="PASS"}})',
                "",
            ),
        ),
    ]


def _recovery() -> list[Panel]:
    return [
        bars(
            "Recovery, 90th percentile",
            "A victim's whole way back, by experiment and fault.",
            "s",
            Ask(
                f'job_experiment_fault_phase:torchchaos_recovery_seconds:p90{{{OF}, phase="recovery"}}',
                f"{OF_EACH} {{{{fault}}}}",
            ),
        ),
        bars(
            "Survivors' next commit, 90th percentile",
            "Of the last survivor, by experiment and fault.",
            "s",
            Ask(
                f'job_experiment_fault_phase:torchchaos_survivor_wait_seconds:p90{{{OF}, phase="last_commit"}}',
                f"{OF_EACH} {{{{fault}}}}",
            ),
        ),
        graph(
            "Goodput",
            "Effective training time of the newest run.",
            "percentunit",
            Ask(f'max by (job, experiment) (torchchaos_goodput_ratio{{{OF}, measure="ettr"}})', OF_EACH),
        ),
        graph(
            "Duration",
            "Of the newest ended run, and since the newest run began.",
            "s",
            Ask(f"max by (job, experiment) (torchchaos_run_duration_seconds{{{OF}}})", f"{OF_EACH} took"),
            Ask(
                f"time() - max by (job, experiment) (torchchaos_run_start_timestamp_seconds{{{OF}}})",
                f"{OF_EACH} ago",
            ),
        ),
    ]


def _jobs() -> list[Panel]:
    return [
        graph(
            "Tokens per second",
            "Of the run so far, from its first commit on.",
            "none",
            Ask(f"max by (job, experiment) (torchchaos_tokens_per_second{{{OF}}})", OF_EACH),
        ),
        graph(
            "Progress",
            "The highest step of the job's steps.",
            "percentunit",
            Ask(
                f"max by (job, experiment) (torchchaos_step{{{OF}}}) "
                f"/ max by (job, experiment) (torchchaos_job_steps{{{OF}}})",
                OF_EACH,
            ),
        ),
    ]
