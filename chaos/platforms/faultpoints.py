"""Orders to a trainer's fault points: it harms itself while a lease on the order is renewed.

Any platform on which the trainer's socket can be reached uses this. The trainer keeps the time: it forgets an order
that is not renewed, whoever died.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from chaos.agent.linux.sockets import peer
from chaos.model.injections import FaultPoint, Proof
from chaos.model.ports import Hold, InjectionRefused

SOCKET = "fault-points.sock"
TTL_S = 3.0
RENEWALS_PER_TTL = 3
ANSWER_S = 5.0
LINE_BYTES_MAX = 4096

_orders = itertools.count(1)


class _Reply(msgspec.Struct):
    ok: bool
    hits: int = 0
    error: str = ""
    trainer: int = 0
    """The pid of who answered, as it is here; that is not in the reply."""


class TrainerSilent(Exception):
    """The trainer is gone or does not answer."""


@asynccontextmanager
async def hold(
    injection: FaultPoint, incarnation: int, folder: Path, gone: anyio.Event | None = None
) -> AsyncIterator[Hold]:
    """Keep an order at the trainer whose socket lies in `folder`. InjectionRefused when it does not take it.

    `gone` is set once the trainer's member is no more, and the order with it.
    """
    order = f"{injection.target}.{incarnation}-{next(_orders)}"
    arm = {"point": injection.point, "action": injection.action, "delay_s": injection.delay_s, "times": injection.times}
    try:
        reply = await _ask(folder, {"do": "arm", "order": order, "ttl_s": TTL_S, **arm})
    except TrainerSilent as error:
        raise InjectionRefused(f"the trainer of {injection.target} takes no orders: {error}") from error
    if not reply.ok:
        raise InjectionRefused(f"the trainer of {injection.target} refuses: {reply.error}")
    what = f"{injection.action.value} at {injection.point.value}"
    held = Hold(order, Proof(injection.target, incarnation, f"its trainer has the order: {what}"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_renew, folder, held, reply.trainer)
        try:
            yield held
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                evidence = "the order is gone with its trainer, which another one follows"
                if not held.target_gone:
                    evidence = await _disarm(folder, order, gone or anyio.Event())
                held.reverted = Proof(injection.target, incarnation, evidence)


async def _renew(folder: Path, held: Hold, trainer: int) -> None:
    """A pod may have another trainer by now, which never had the order."""
    while not held.ended:
        await anyio.sleep(TTL_S / RENEWALS_PER_TTL)
        try:
            reply = await _ask(folder, {"do": "renew", "order": held.order})
        except TrainerSilent:
            continue  # It is dead, or it holds its own lock; either way the order ends with its time.
        held.target_gone = reply.trainer != trainer
        held.trouble = "" if held.target_gone else reply.error


async def _disarm(folder: Path, order: str, gone: anyio.Event) -> str:
    """End the order. A trainer that does not answer has forgotten it once its time is over, or with its end."""
    try:
        reply = await _ask(folder, {"do": "disarm", "order": order})
    except TrainerSilent as error:
        with anyio.move_on_after(TTL_S):
            await gone.wait()
            return f"the order is gone with its trainer: {error}"
        return f"the order has run out, {TTL_S:g} s after its last renewal: {error}"
    if not reply.ok:
        return f"the trainer has no such order any more: {reply.error}"
    return f"its trainer has dropped the order after {reply.hits} hits"


async def _ask(folder: Path, request: dict[str, Any]) -> _Reply:
    """One request over a connection of its own, through an open folder because a socket's path must be short."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise TrainerSilent(f"{folder}: {error.strerror}") from error
    try:
        with anyio.fail_after(ANSWER_S):
            async with await anyio.connect_unix(f"/proc/self/fd/{descriptor}/{SOCKET}") as stream:
                return await _exchange(stream, request)
    except TimeoutError as error:
        raise TrainerSilent(f"no answer within {ANSWER_S:g} s") from error
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
        raise TrainerSilent(f"its socket does not answer ({error or type(error).__name__})") from error
    finally:
        os.close(descriptor)


async def _exchange(stream: SocketStream, request: dict[str, Any]) -> _Reply:
    await stream.send(msgspec.json.encode(request) + b"\n")
    line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LINE_BYTES_MAX)
    reply = msgspec.json.decode(line, type=_Reply)
    reply.trainer, _ = peer(stream.extra(SocketAttribute.raw_socket))
    return reply
