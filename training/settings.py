"""What a person may set about a job, with units, bounds and the errors they get.

Light on purpose: no torch here, so that ``describe`` answers at once.
Not here: what the recipes are (``recipes``), why timers have their values and which go together (``timers``), how
members are started (``workload``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta


class UserError(ValueError):
    """A mistake in what the person typed. Its text is the one line shown to them."""


def near_miss(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the word probably meant, else all known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a job. Names end in their unit; a recipe has its own defaults for some."""

    seed: Annotated[int, Meta(ge=0, description="seed of the initial weights, the same on every replica")] = 1
    heal: Annotated[
        Literal["cached", "stock", "stale_rate", "stale_weights", "off"],
        Meta(
            description="cached: hand out what the main thread cached after a step; known bugs: stock, "
            "collect it on TorchFT's thread; stale_rate, stale_weights, hand out those of build time; off, none"
        ),
    ] = "cached"
    schedule: Annotated[
        Literal["committed", "tries"],
        Meta(description="what the learning rate counts: committed steps, or, as TorchTitan 0.3, tries"),
    ] = "committed"
    lighthouse: Annotated[
        Literal["member", "controller"], Meta(description="where the lighthouse runs: alone, or inside the controller")
    ] = "member"
    init_sync: Annotated[
        bool,
        Meta(
            description="whether all replicas take their first state from one, as TorchFT has it: they contribute "
            "nothing to the first update then, but are counted; one seed gives them the same state anyway"
        ),
    ] = False
    non_finite: Annotated[
        Literal["discard", "commit"],
        Meta(
            description="an update whose gradient norm is no finite number: discard it, or commit it as TorchTitan 0.3"
        ),
    ] = "discard"
    gradients_over: Annotated[
        Literal["rdma", ""],
        Meta(description="the path that gradients are to take, for the monitor fast_path; empty: not said"),
    ] = ""
    digest_every: Annotated[int, Meta(ge=0, description="steps between digests of the state; 0: none")] = 8
    log_every: Annotated[int, Meta(ge=1, description="steps between lines in a trainer's log")] = 20
    checkpoint_every: Annotated[
        int, Meta(ge=0, description="committed steps between checkpoints on a replica's disk; 0: none")
    ] = 0
    checkpoints: Annotated[
        Literal["own", "stock"], Meta(description="who writes checkpoints: this package, or TorchTitan 0.3 as it is")
    ] = "own"

    batch: Annotated[int, Meta(ge=1, description="sequences per replica and step")] = 1
    seq_len: Annotated[int, Meta(ge=16, description="tokens per sequence")] = 128
    learning_rate: Annotated[float, Meta(gt=0, description="peak rate, after the warm-up")] = 8e-4
    warmup_steps: Annotated[int, Meta(ge=0, description="committed steps until the peak rate")] = 10
    decay_ratio: Annotated[
        float, Meta(ge=0, le=1, description="share of the steps, the last ones, with a falling rate")
    ] = 0.8
    data: Annotated[str, Meta(description="folder of a local copy of C4; empty: the embedded corpus")] = ""
    tokenizer: Annotated[str, Meta(description="folder with tokenizer.json; empty: the embedded one")] = ""

    profile: Annotated[
        Literal["tuned", "upstream"], Meta(description="what all settings below are, unless they are set: see timers")
    ] = "tuned"
    process_group_timeout_s: Annotated[float, Meta(gt=0, description="longest wait in one gradient exchange")] = 5.0
    quorum_timeout_s: Annotated[float, Meta(gt=0, description="longest wait for one quorum")] = 60.0
    quorum_retries: Annotated[int, Meta(ge=0, description="further quorum attempts when the lighthouse is away")] = 239
    connect_timeout_s: Annotated[
        float, Meta(gt=0, description="longest wait for a connection to lighthouse or peer")
    ] = 2.0
    heal_timeout_s: Annotated[
        float, Meta(gt=0, description="longest wait for a peer's state and for a commit vote")
    ] = 30.0
    heartbeat_timeout_ms: Annotated[int, Meta(ge=300, description="silence after which a replica is dead")] = 400
    join_timeout_ms: Annotated[int, Meta(ge=100, description="wait for stragglers once a quorum is possible")] = 10_000
    quorum_tick_ms: Annotated[int, Meta(ge=5, description="pause between two looks at the quorum")] = 20

    history: Annotated[
        Literal["kept", "restart"],
        Meta(
            description="when all who had the state are lost, and the minimum of replicas is there without: kept, "
            "nothing is committed; restart, the job begins again, and says nothing"
        ),
    ] = "kept"
    silence_s: Annotated[
        float, Meta(ge=0, description="silence of a trainer after which its peers wait no longer; 0: never")
    ] = 1.0
    hang_s: Annotated[
        float, Meta(ge=0, description="time after which a trainer that keeps its peers waiting is ended; 0: never")
    ] = 3.0
    link_loss_s: Annotated[
        float, Meta(ge=0, description="loss of the data interface after which a trainer ends itself; 0: never")
    ] = 0.5
    path_check_s: Annotated[
        float,
        Meta(
            ge=0,
            description="wait for its peers after which trainers try whether they reach each other, and who is cut off "
            "from most ends until it does; 0: never",
        ),
    ] = 0.5
    respawn: Annotated[
        Literal["pod", "fork", "standby"],
        Meta(
            description="who follows a dead trainer: pod, a new life of its whole member; fork, one from a process "
            "that has imported all; standby, one that is built already (on a GPU there is no memory for it)"
        ),
    ] = "fork"

    attach_timeout_s: Annotated[float, Meta(gt=0, description="longest wait for one Monarch attach")] = 10.0
    spawn_timeout_s: Annotated[
        float, Meta(gt=0, description="longest wait for a spawned trainer, which imports first, to announce itself")
    ] = 180.0
    attach_attempts: Annotated[int, Meta(ge=1, description="failures in a row after which a member is given up")] = 10
    adopt_timeout_s: Annotated[
        float, Meta(gt=0, description="wait of a restarted controller for the trainer of a known worker")
    ] = 5.0
    heal_over: Annotated[
        Literal["data", "control"],
        Meta(
            description="the interface that a state is handed out on: data, that of the gradients; control, that of "
            "the host's name, as TorchFT has it"
        ),
    ] = "data"
    detection: Annotated[
        Literal["connection", "monarch"],
        Meta(description="connection: a life ends with its connections; monarch: with the call to its trainer"),
    ] = "connection"
    monarch_timers: Annotated[
        Literal["tuned", "stock"],
        Meta(description="tuned: Monarch notices the dead in seconds; stock: its own defaults"),
    ] = "tuned"
    orphan_timeout_s: Annotated[
        int, Meta(ge=1, description="silence of the controller after which Monarch ends its trainers")
    ] = 86_400
    finish_grace_s: Annotated[
        float, Meta(gt=0, description="wait for the others once one replica has made all steps")
    ] = 10.0
    stop_grace_s: Annotated[float, Meta(gt=0, description="longest wait for the last step after a stop request")] = 10.0


def setting_types() -> dict[str, Any]:
    """Annotated type of every setting, by name."""
    return get_type_hints(Settings, include_extras=True)


def with_changes(settings: Settings, changes: Iterable[str]) -> Settings:
    """Apply ``key=value`` texts, in order. Raises UserError naming the value, why it is wrong, what to type."""
    types = setting_types()
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise UserError(f"--set {change}: no value; type --set {change}=VALUE")
        if key not in types:
            raise UserError(f"--set {change}: unknown setting {key!r}; {near_miss(key, types)}")
        if "{" in text or "}" in text:
            raise UserError(f"--set {change}: braces are kept for placeholders; choose a value without them")
        try:
            values[key] = msgspec.convert(text, types[key], strict=False)
        except msgspec.ValidationError as error:
            raise UserError(f"--set {change}: {error} ({description(types[key])})") from None
    return msgspec.structs.replace(settings, **values)


def description(annotated: Any) -> str:
    """The meaning of a setting, from its annotation."""
    return next((str(meta.description) for meta in annotated.__metadata__ if isinstance(meta, Meta)), "")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One training job: a recipe, how many replicas, how many committed steps, and the settings."""

    recipe: str
    replicas: int
    min_replicas: int
    steps: int
    settings: Settings

    def members(self) -> list[str]:
        """Names of the replicas, in the order of their data shards."""
        return [f"replica-{shard}" for shard in range(self.replicas)]


def shard_of(member: str) -> int:
    """Data shard of a replica: the number at the end of its name."""
    return int(member.rpartition("-")[2])
