"""The Monarch actor of one replica: has its trainer run to the end of the job.

The trainer is a fork of the member's nursery, which follows it with another when it dies; with ``respawn=pod`` it runs
in the actor's own process, as Monarch's examples have it, and its end is the end of the member's life.
Light to import, because Monarch imports it before the trainer may announce itself.
"""

from __future__ import annotations

import msgspec
from monarch.actor import Actor, endpoint

from training import announce, nursery, process


class TrainerActor(Actor):  # type: ignore[misc]
    """Runs one trainer. Sync endpoints: TorchTitan's loop is synchronous and keeps its thread."""

    @endpoint  # type: ignore[untyped-decorator]
    def train(self, assignment: bytes) -> str:
        """Train to the end of the job. A failure that nobody follows up here ends this process, or the whole member."""
        order = msgspec.json.decode(assignment, type=announce.Assignment)
        process.when_parent_ends(process.kill_self)
        if order.job.settings.respawn == "pod":
            from training.life import Life

            return Life(order).run()
        return nursery.train(order)
