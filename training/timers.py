"""The timers of a job, and what it does about the dead and the hung: two profiles, and the order that timers must keep.

``tuned`` is for steps of a known length; ``upstream`` is what TorchFT 0.2, TorchTitan 0.3 and Monarch 0.7 come with,
wrong orders included. ``--set profile=upstream`` takes one as a whole; single values may then be set on top of it.
Not here: who waits by them (``healing``, ``watch``, ``lighthouse``, ``workload``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from training.settings import Settings, UserError

PROFILES = ("tuned", "upstream")


class Timer(msgspec.Struct, frozen=True):
    """One setting in both profiles. ``tuned`` makes it from the seconds of a step; ``why``: its reason and its risk."""

    upstream: Any
    tuned: Callable[[float], Any]
    why: str


def _quorum_timeout_s(step_s: float) -> float:
    return 60.0 if step_s < 1 else 600 * step_s


TIMERS = {
    "heartbeat_timeout_ms": Timer(
        5000, lambda step_s: 400 if step_s < 1 else 1000,
        "four heartbeats of TorchFT's own thread; the controller, which knows the dead, vouches for who only stands "
        "for less than silence_s; without a controller a busy machine loses members",
    ),
    "quorum_tick_ms": Timer(100, lambda _: 20, "up to one tick is added to every quorum; shorter only costs CPU"),
    "join_timeout_ms": Timer(
        60_000, lambda step_s: 10_000 if step_s < 1 else round(60_000 * step_s),
        "how long the ready wait for one who beats and does not ask; below a step, the group never is whole again",
    ),
    "process_group_timeout_s": Timer(
        10.0, lambda step_s: 5.0 if step_s < 1 else 60 * step_s,
        "the last resort against a peer that nobody knows is lost; shorter, a slow exchange or a heal is given up",
    ),
    "quorum_timeout_s": Timer(
        60.0,
        _quorum_timeout_s,
        "outlives every wait inside it; longer, an error is told later",
    ),
    "quorum_retries": Timer(
        0,
        lambda step_s: round(_quorum_timeout_s(step_s) / 0.25) - 1,
        "a request that a dying lighthouse took with it is made again; TorchFT pauses for quorum_timeout_s by their "
        "number, here 0.25 s, and what a lighthouse that stays away costs is quorum_timeout_s all the same",
    ),
    "connect_timeout_s": Timer(
        60.0, lambda _: 2.0,
        "who connects to where a lighthouse was before its restart is heard of no more, nor of others, for so long; "
        "shorter, a slow name server is given up, and asked again",
    ),
    "heal_timeout_s": Timer(
        60.0, lambda step_s: 30.0 if step_s < 1 else 600 * step_s,
        "a donor may die within it, and all wait; shorter, a large state never arrives",
    ),
    "silence_s": Timer(
        0.0, lambda _: 1.0,
        "five beats; a step is given up for a peer that is silent, in vain when it was only slow to tell",
    ),
    "hang_s": Timer(
        0.0, lambda step_s: max(3.0, 8 * step_s),
        "ends a trainer for which its peers wait; shorter, one that is slow for a moment is ended",
    ),
    "link_loss_s": Timer(
        0.0, lambda _: 0.5, "a cable that flaps for less is not worth a new trainer; longer, its peers stand"
    ),
    "path_check_s": Timer(
        0.0, lambda step_s: max(0.5, step_s),
        "both sides of a cut path are well and say so: only trying tells; shorter, more is tried in vain",
    ),
    "heal_over": Timer(
        "control", lambda _: "data",
        "a state is as large as the gradients of many steps, and belongs on the fast network; there it takes of theirs",
    ),
    "detection": Timer("monarch", lambda _: "connection", "a closed connection tells at once what Monarch tells late"),
    "monarch_timers": Timer("stock", lambda _: "tuned", "see workload.MONARCH_TIMERS; a busy host may seem dead"),
    "orphan_timeout_s": Timer(60, lambda _: 86_400, "trainers need no controller; who leaves one behind must end them"),
    "history": Timer("restart", lambda _: "kept", "what was trained is not trained over; who lost it all must say so"),
    "respawn": Timer(
        "pod", lambda step_s: "fork" if step_s < 1 else "pod",
        "a fork has all imports behind it; it costs their memory, and is untried with the whole stack on a GPU",
    ),
}  # fmt: skip


def profile(name: str, step_s: float) -> dict[str, Any]:
    """The settings that a profile stands for, for steps of ``step_s``."""
    return {key: timer.upstream if name == "upstream" else timer.tuned(step_s) for key, timer in TIMERS.items()}


TOO_LATE = "its peers would be in a reconfiguration that even its end cannot free"
ORDER = (
    ("hang_s", "process_group_timeout_s", TOO_LATE),
    ("path_check_s", "process_group_timeout_s", TOO_LATE),
    ("process_group_timeout_s", "quorum_timeout_s", "a replica stuck in an exchange would outlast its peers' quorum"),
    ("heartbeat_timeout_ms", "quorum_timeout_s", "no quorum would end in time"),
    ("join_timeout_ms", "quorum_timeout_s", "no quorum would end in time"),
)  # fmt: skip
"""Inner timer, outer one, and what happens when the outer one is not the longer."""


def check(settings: Settings) -> None:
    """Refuse an order that cannot work. Upstream's own is taken as it is. Source: TorchFT's quorum rules, seen in runs.

    Raises UserError.
    """
    if settings.profile == "upstream":
        return
    for inner, outer, why in ORDER:
        if seconds(settings, inner) >= seconds(settings, outer):
            raise UserError(
                f"{inner}={getattr(settings, inner):g} must be below {outer}={getattr(settings, outer):g}: {why}; "
                f"type --set {outer}={seconds(settings, inner) * 6:g}, or --set profile=upstream"
            )
    if settings.quorum_tick_ms * 2 > settings.heartbeat_timeout_ms:
        raise UserError(
            f"quorum_tick_ms={settings.quorum_tick_ms} must be at most half of "
            f"heartbeat_timeout_ms={settings.heartbeat_timeout_ms}: silence would be told late; "
            "type --set quorum_tick_ms=20"
        )


def seconds(settings: Settings, name: str) -> float:
    """The value of a timer, whatever its unit."""
    value: float = getattr(settings, name)
    return value / 1000 if name.endswith("_ms") else value
