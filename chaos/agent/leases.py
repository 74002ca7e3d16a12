"""Leases: who holds what, until when. The kernel is touched in worker threads, one at a time per resource.

Every change - grant, renewal, release, expiry, sweep - is the same: settle the resource on the leases that are left,
read it back, then say so. What cannot be proven reverted is tried again until it is, and shows as STUCK until then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio import to_thread

from chaos.agent import guard
from chaos.agent.ledger import Ledger
from chaos.agent.linux import catalogue
from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource
from chaos.agent.linux.resource import State as Before
from chaos.agent.wire import Grant, Reply, State

LEASES_MAX = 256
ENDINGS_MAX = 1024
REVERT_S = 0.1
"""Expiry begins this much before the ttl is over, so that the fault has ended when it is."""
TICK_S = 0.05
RETRY_S = 0.5
END_ALL_S = 10.0

log = logging.getLogger(__name__)


class Refused(Exception):
    """A request that is not met; nothing of it is in force. The message says why."""


@dataclass
class Held:
    """A resource with the leases on it, and those that ended but are not proven reverted yet."""

    resource: Resource
    before: Before | None = None
    leases: dict[str, Lease] = field(default_factory=dict)
    ended: dict[str, State] = field(default_factory=dict)
    failure: str = ""
    retry_at_s: float = 0.0
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def settle(self) -> str:
        """Gone, or NotInForce for whatever else goes wrong: a defect here must not leave a fault in force unseen."""
        assert self.before is not None
        try:
            return self.resource.settle(list(self.leases.values()), self.before)
        except (Gone, NotInForce):
            raise
        except Exception as error:
            raise NotInForce(_reason(error)) from error


class Leases:
    """All leases of this agent. Used in one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: dict[str, Held] = {}
        self._where: dict[str, Held] = {}
        self._endings: dict[str, Reply] = {}

    def status(self) -> dict[str, State]:
        return {lease: State.STUCK if lease in held.ended else State.HELD for lease, held in self._where.items()}

    async def sweep(self) -> None:
        """Give back what a predecessor on this ledger held."""
        for entry in self._ledger.entries():
            resource = catalogue.resource(entry.grant)
            held = self._held.setdefault(resource.key, Held(resource, entry.before))
            held.ended[entry.grant.lease] = State.SWEPT
            self._where[entry.grant.lease] = held
        for held in list(self._held.values()):
            async with held.lock:
                await self._give_back(held)

    async def grant(self, grant: Grant, client: int) -> Reply:
        """In force when this returns; Refused, and everything undone, otherwise."""
        if grant.lease in self._where:
            raise Refused(f"lease {grant.lease} is held already")
        if len(self._where) >= LEASES_MAX:
            raise Refused(f"{LEASES_MAX} leases are held, which is the most")
        try:
            guard.check(grant, client)
            resource = catalogue.resource(grant)
        except (NotInForce, OSError) as error:
            raise Refused(_reason(error)) from error
        held = self._where[grant.lease] = self._held.setdefault(resource.key, Held(resource))
        with anyio.CancelScope(shield=True):
            async with held.lock:
                reply = await self._grant(held, grant)
        return reply

    async def _grant(self, held: Held, grant: Grant) -> Reply:
        try:
            evidence = await to_thread.run_sync(self._put, held, grant)
        except Exception as error:
            reason = _reason(error)
            if grant.lease in held.leases:
                await self._end(held, {grant.lease: State.RELEASED})
                reason += f"; {held.failure}" if held.failure else ""
            else:
                del self._where[grant.lease]
            log.info("%s refused: %s", grant.lease, reason)
            raise Refused(reason) from error
        held.leases[grant.lease].deadline_s = _deadline(grant)
        log.info("%s in force: %s", grant.lease, evidence)
        return Reply(ok=True, state=State.HELD, evidence=evidence)

    def _put(self, held: Held, grant: Grant) -> str:
        if held.before is None:
            held.before = held.resource.before()
        grant = held.resource.narrow(grant)
        self._ledger.write(grant, held.before)
        held.leases[grant.lease] = Lease(grant, _deadline(grant))
        return held.settle()

    def prolong(self, lease: str) -> None:
        """Another ttl from now, if it is still held: that it is in force is for `renew` to prove."""
        held = self._where.get(lease)
        if held is not None and lease in held.leases:
            held.leases[lease].deadline_s = _deadline(held.leases[lease].grant)

    async def renew(self, lease: str, peers: Mapping[str, tuple[str, ...]] | None = None) -> Reply:
        """The proof that it is still in force. Not `ok` when it is not, or when the lease has ended meanwhile.

        `peers` are new addresses of those that the grant names.
        """
        held = self._where.get(lease)
        if held is None or lease not in held.leases:
            return self._how_ended(lease)
        self.prolong(lease)
        renewed = held.leases[lease]
        if peers:
            renewed.grant = msgspec.structs.replace(renewed.grant, peers={**renewed.grant.peers, **peers})
        with anyio.CancelScope(shield=True):
            async with held.lock:
                reply = await self._confirm(held, lease)
        return reply

    async def _confirm(self, held: Held, lease: str) -> Reply:
        if lease not in held.leases:
            return self._how_ended(lease)
        try:
            return Reply(ok=True, state=State.HELD, evidence=await to_thread.run_sync(held.settle))
        except Gone:
            await self._give_back(held)
            return self._how_ended(lease)
        except NotInForce as error:
            return Reply(ok=False, state=State.HELD, error=f"not in force any more: {error}")

    async def release(self, lease: str) -> Reply:
        """The proof that it is reverted, now or when it ended."""
        held = self._where.get(lease)
        if held is not None:
            with anyio.CancelScope(shield=True):
                async with held.lock:
                    if lease in held.leases:
                        await self._end(held, {lease: State.RELEASED})
                    elif lease in held.ended:
                        await self._give_back(held)
        ending = self._how_ended(lease)
        return Reply(ok=True, state=ending.state, evidence=ending.evidence) if ending.evidence else ending

    async def run(self) -> None:
        """Expire leases and try again what is stuck, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                now = time.monotonic()
                for key, held in list(self._held.items()):
                    if held.lock.locked():
                        continue
                    if not held.leases and not held.ended:
                        del self._held[key]
                    elif _expired(held, now) or (held.ended and now >= held.retry_at_s):
                        tasks.start_soon(self._expire, held)
                deadlines = [lease.deadline_s for held in self._held.values() for lease in list(held.leases.values())]
                next_s = min([deadline - now for deadline in deadlines if deadline > now], default=TICK_S)
                await anyio.sleep(min(next_s, TICK_S))

    async def _expire(self, held: Held) -> None:
        with anyio.CancelScope(shield=True):
            async with held.lock:
                await self._end(held, dict.fromkeys(_expired(held, time.monotonic()), State.EXPIRED))

    async def end_all(self) -> None:
        """Give everything back, within END_ALL_S."""
        with anyio.move_on_after(END_ALL_S, shield=True):
            async with anyio.create_task_group() as tasks:
                for held in self._held.values():
                    tasks.start_soon(self._end_held, held)

    async def _end_held(self, held: Held) -> None:
        async with held.lock:
            await self._end(held, dict.fromkeys(held.leases, State.RELEASED))

    async def _end(self, held: Held, leases: dict[str, State]) -> None:
        for lease, state in leases.items():
            del held.leases[lease]
            held.ended[lease] = state
        await self._give_back(held)

    async def _give_back(self, held: Held) -> None:
        """Settle; on success everything that ended is proven reverted. The caller has the lock."""
        try:
            evidence = await to_thread.run_sync(held.settle)
        except Gone as gone:
            evidence = f"{gone}: nothing to give back"
            held.ended.update(dict.fromkeys([*held.leases, *held.ended], State.GONE))
            held.leases.clear()
        except NotInForce as error:
            held.failure = f"not given back yet: {error}"
            held.retry_at_s = time.monotonic() + RETRY_S
            log.warning("%s %s", ", ".join(held.ended), held.failure)
            return
        held.failure = ""
        for lease, state in held.ended.items():
            await to_thread.run_sync(self._ledger.remove, lease)
            del self._where[lease]
            self._endings.pop(lease, None)
            self._endings[lease] = Reply(
                ok=False, state=state, evidence=evidence, error=f"the lease has ended: {state.value}"
            )
            log.info("%s %s: %s", lease, state.value, evidence)
        held.ended.clear()
        if not held.leases:
            held.before = None
        while len(self._endings) > ENDINGS_MAX:
            del self._endings[next(iter(self._endings))]

    def _how_ended(self, lease: str) -> Reply:
        held = self._where.get(lease)
        if held is not None:
            return Reply(ok=False, state=State.STUCK, error=held.failure)
        if lease in self._endings:
            return self._endings[lease]
        raise Refused(f"no lease {lease} is known here")


def _reason(error: Exception) -> str:
    """In one line; of what was not foreseen with its type."""
    return str(error) if isinstance(error, Gone | NotInForce) else f"{type(error).__name__}: {error}"


def _deadline(grant: Grant) -> float:
    return time.monotonic() + grant.ttl_s - REVERT_S


def _expired(held: Held, now: float) -> list[str]:
    return [lease for lease, held_lease in held.leases.items() if held_lease.deadline_s <= now]
