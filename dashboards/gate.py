"""The trend of gates: whether recovery still works, and whether it got slower."""

from __future__ import annotations

from typing import Any

from dashboards.panels import OUTCOMES, Ask, Panel, board, graph, lanes, outcome

OF_GATE = 'job=~"$job", gate=~"$gate"'
OBJECTIVE = "{{experiment}}: {{objective}}"
BY = "gate, experiment, objective"


def dashboard() -> dict[str, Any]:
    return board(
        "torchchaos-gate",
        "torchchaos: gates",
        "Gates over time, from a Pushgateway or a textfile that `chaos metrics` writes after each of them.",
        {"Outcome": _outcome(), "Trend": _trend(), "Runs": _runs()},
        ("job", "label_values(torchchaos_gate_outcome, job)"),
        ("gate", 'label_values(torchchaos_gate_outcome{job=~"$job"}, gate)'),
    )


def _outcome() -> list[Panel]:
    return [
        lanes(
            "Gates",
            "The newest outcome of each gate.",
            OUTCOMES,
            Ask(outcome("torchchaos_gate_outcome", OF_GATE, "gate"), "{{gate}}"),
        ),
        lanes(
            "Objectives",
            "What the runs show of each objective; UNKNOWN: not enough runs to say.",
            OUTCOMES,
            Ask(outcome("torchchaos_gate_objective_outcome", OF_GATE, BY), OBJECTIVE),
        ),
    ]


def _trend() -> list[Panel]:
    return [
        graph(
            "Measured",
            "The estimate of each objective.",
            "none",
            Ask(f"max by ({BY}) (torchchaos_gate_objective_value{{{OF_GATE}}})", OBJECTIVE),
        ),
        graph(
            "Margin",
            "What it is at worst, with the gate's confidence, against what was asked for.",
            "none",
            Ask(f"max by ({BY}) (torchchaos_gate_objective_bound{{{OF_GATE}}})", f"{OBJECTIVE} at worst"),
            Ask(f"max by ({BY}) (torchchaos_gate_objective_limit{{{OF_GATE}}})", f"{OBJECTIVE} limit"),
        ),
    ]


def _runs() -> list[Panel]:
    return [
        graph(
            "Runs made",
            "By their outcome, of those the suite asks for; fewer are enough when they decide.",
            "none",
            Ask(
                f"sum by (gate, experiment, outcome) (torchchaos_gate_runs{{{OF_GATE}}})",
                "{{experiment}} {{outcome}}",
            ),
            Ask(f"sum by (gate, experiment) (torchchaos_gate_runs_wanted{{{OF_GATE}}})", "{{experiment}} wanted"),
        ),
        graph(
            "Duration",
            "The time that each gate took.",
            "s",
            Ask(f"max by (gate) (torchchaos_gate_duration_seconds{{{OF_GATE}}})", "{{gate}}"),
        ),
        graph(
            "Age",
            "Since the newest gate began.",
            "s",
            Ask(f"time() - max by (gate) (torchchaos_gate_start_timestamp_seconds{{{OF_GATE}}})", "{{gate}}"),
        ),
        graph(
            "Ended by themselves",
            "0: interrupted, and to be gone on with.",
            "none",
            Ask(f"min by (gate) (torchchaos_gate_complete{{{OF_GATE}}})", "{{gate}}"),
        ),
    ]
