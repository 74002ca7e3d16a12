"""Reads the event files of a running job and says in words how it goes; at the end, whether the replicas agree.

Reads only; works on any folder of event files, whoever started the members.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


class EventFiles:
    """All event files of a folder, each read on from where it was left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = defaultdict(int)

    def new(self) -> Iterator[dict[str, Any]]:
        """Events since the last call, file by file; a line not yet whole is left for the next call."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] += len(whole)
            for line in whole.splitlines():
                yield msgspec.json.decode(line)


class Progress:
    """What is known of a job from its events."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._began = time.monotonic()
        self._committed: dict[int, float] = {}
        self._digests: dict[int, dict[str, str]] = defaultdict(dict)
        self._lives: dict[str, int] = {}
        self._discards = 0
        self._last: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> str | None:
        """Note an event; gives a line for people when it is worth one."""
        who = f"{event['member']}#{event['incarnation']}"
        match event["kind"]:
            case "step":
                self._step(event)
                if not event["committed"]:
                    return f"{who} discards step {event['step']}: {event['error']}"
            case "trainer_started":
                self._lives[event["member"]] = event["incarnation"]
                boot = event["boot_s"]
                return f"{who} ready (import {boot['import']:.1f} s, build {boot['build']:.1f} s)"
            case "member_lost":
                return f"{event['name']}#{event['member_incarnation']} lost: {event['reason']}"
            case "trainer_lost":
                return f"{event['name']}#{event['member_incarnation']} {event['reason']}, nobody waits for it"
            case "attach_failed":
                return f"{event['name']}#{event['member_incarnation']} not started: {event['error']}"
            case "heal_ended":
                return f"{who} healed at step {event['step']} from {event['source']}"
            case "trainer_failed":
                return f"{who} failed: {event['error']}"
            case "trainer_finished":
                return f"{who} finished at step {event['step']}: {event['reason']}"
        return None

    def _step(self, event: dict[str, Any]) -> None:
        if not event["committed"]:
            self._discards += 1
            return
        self._committed.setdefault(event["step"], event["mono_s"])
        self._last = event
        if event["digest"]:
            self._digests[event["step"]][event["member"]] = event["digest"]

    def line(self) -> str:
        """The state of the job in one line; the rate is that of the last ten seconds."""
        if not self._committed:
            return "no step yet"
        now = time.monotonic()
        recent = sum(1 for at in self._committed.values() if at > now - 10)
        step = max(self._committed, default=0)
        loss = self._last.get("loss")
        return (
            f"step {step}/{self._steps}  {recent / min(10.0, now - self._began):.1f} steps/s  "
            f"{self._last.get('participants', 0)} participants" + (f"  loss {loss:.3f}" if loss is not None else "")
        )

    def differing_steps(self) -> list[int]:
        """Steps at which two replicas had different states after the commit."""
        return sorted(step for step, digests in self._digests.items() if len(set(digests.values())) > 1)

    def summary(self) -> list[str]:
        """How it went, for the end."""
        lives = ", ".join(f"{member}: {count}" for member, count in sorted(self._lives.items()))
        common = sum(1 for digests in self._digests.values() if len(digests) > 1)
        differing = self.differing_steps()
        agreement = f"equal at all {common}"
        if differing:
            agreement = f"differ at {len(differing)} of {common}, first at step {differing[0]},"
        took_s = time.monotonic() - self._began
        return [
            f"{len(self._committed)} steps committed in {took_s:.1f} s, {self._discards} tries discarded",
            f"lives  {lives or 'none'}",
            f"states {agreement} common steps",
        ]
