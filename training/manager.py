"""TorchFT's manager as a replica of ours needs it: it joins when it is ready, tells what happens, and leaves the lost.

Beside it the two things that it talks through: the transport of heals and the client of its own server.
Not here: what state is handed out, and how a manager is made (``healing``); who is lost (``watch``).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol
from unittest import mock
from urllib.parse import urlsplit
from urllib.request import urlopen

import torch
import torchft
from torchft.checkpointing import HTTPTransport
from torchft.checkpointing._serialization import _streaming_load
from torchft.utils import get_stream_context

from training import harm
from training.errands import Errand
from training.faultpoints import FaultPoints, Ordered
from training.waits import Waits

# What replaces a replica's own gradient; one that heals has none.
HARMS = {"nan": harm.put_nan, "flip_gradient": harm.flip_gradient}
NO_QUORUM = -1
LIGHTHOUSE_RETRY_S = 0.25


class Watch(Protocol):
    """What a manager tells, some of it on TorchFT's quorum thread."""

    def quorum(self, result: Any, state_step: int) -> None: ...
    def served(self, step: int, ranks: list[int]) -> None: ...
    def healed(self, step: int) -> None: ...


class AdvertisedTransport(HTTPTransport):  # type: ignore[misc]
    """TorchFT's HTTP transport, reached by the name we choose; upstream insists on ``gethostname()``."""

    def __init__(self, *, timeout: timedelta, host: str) -> None:
        self._host = host
        self.watch: Watch | None = None
        self.points = FaultPoints()
        self.fetching = Errand("state-fetching")
        self.answered = False
        """Whether the donor has begun to hand over what is fetched."""
        super().__init__(timeout=timeout, num_chunks=0)
        self._server.RequestHandlerClass = self._serving(self._server.RequestHandlerClass)

    def address(self) -> str:
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta) -> None:
        super().send_checkpoint(dst_ranks, step, state_dict, timeout)
        if self.watch is not None:
            self.watch.served(step, dst_ranks)

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        self.points.at("in_heal", step + 1)
        self.answered = False
        fetch = super().recv_checkpoint
        return self.fetching.run(lambda: fetch(src_rank, metadata, step, timeout))

    def _load_from_address(self, address: str, timeout: timedelta) -> object:
        with urlopen(address, timeout=timeout.total_seconds()) as answer:
            self.answered = True
            return _streaming_load(answer, weights_only=False)

    def _serving(self, stock: Any) -> Any:
        """TorchFT's request handler with a fault point between the head and the body of an answer, which is given on
        a thread of its own while the state is locked: the trainer goes on up to its next commit.
        """
        transport = self

        class Handler(stock):  # type: ignore[misc]
            def send_response(self, code: int, message: str | None = None) -> None:
                self.gives_state = code == 200
                super().send_response(code, message)

            def end_headers(self) -> None:
                super().end_headers()
                if self.gives_state:
                    transport.points.at("in_serve", transport._step + 1)

        return Handler


class WatchedClient:
    """TorchFT's manager client; shows every quorum result, which the manager itself does not keep, and may lie."""

    def __init__(self, client: Any, manager: ReplicaManager) -> None:
        self._client = client
        self._owner = manager

    def _quorum(self, **arguments: Any) -> Any:
        lost_before = self._owner.lost.copy()
        result = self._client._quorum(**arguments)
        if has_follower(result.replica_ids):
            result = self._client._quorum(**arguments)
        self._owner.joined(result, lost_before)
        result.store_address += f"/{meeting_place(result.replica_ids, result.max_step)}"
        if self._owner.watch is not None:
            self._owner.watch.quorum(result, self._owner.current_step())
        return result

    def should_commit(self, group_rank: int, step: int, vote: bool, timeout: timedelta) -> Any:
        if "lie" in self._owner.points.at("before_commit", step + 1):
            vote = not vote
        return self._client.should_commit(group_rank, step, vote, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def meeting_place(members: list[str], step: int) -> str:
    """A name of its own for a group, under which its members find each other; the same for all of them.

    The number of its quorum is none: a lighthouse that was started again counts from 1, and the addresses of those who
    met under that number before would be found there.
    """
    return hashlib.sha256("\n".join([*sorted(members), str(step)]).encode()).hexdigest()[:16]


def has_follower(members: list[str]) -> bool:
    """Whether two members have one name. One has followed the other, which asked for this quorum and died: it beat
    lately, but a group with it would be in the making until that is given up. All see it, and ask once more.
    """
    return len({member.partition(":")[0] for member in members}) < len(members)


class LateServer:
    """Stands in for TorchFT's manager server until ``start``: a server beats from its first moment on, and a replica
    that beats and does not ask yet keeps every quorum waiting for as long as it is built.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._server: Any = None

    def address(self) -> str:
        return ""

    def start(self, connect_timeout: timedelta, patience: timedelta) -> Any:
        """Begin to beat, as soon as the lighthouse is there; gives a client, which reaches the server whether or not
        this machine has a network. Raises what TorchFT does when there is no lighthouse for so long.
        """
        until_s = time.monotonic() + patience.total_seconds()
        while self._server is None:
            try:
                self._server = torchft.manager.ManagerServer(**self._arguments)
            except (RuntimeError, TimeoutError):
                if time.monotonic() > until_s:
                    raise
                time.sleep(LIGHTHOUSE_RETRY_S)
        port = urlsplit(self._server.address()).port
        return torchft.manager.ManagerClient(f"http://127.0.0.1:{port}", connect_timeout=connect_timeout)

    def shutdown(self) -> None:
        if self._server is not None:
            self._server.shutdown()


class ReplicaManager(torchft.Manager):  # type: ignore[misc]
    """TorchFT's manager with a state cache (used once ``cache_state`` was called) and a watch.

    The lighthouse hears of it with ``join``, not before.
    """

    def __init__(self, *, leave_on_error: bool, waits: Waits, **arguments: Any) -> None:
        with mock.patch.multiple(torchft.manager, ManagerServer=LateServer, ManagerClient=lambda *_, **__: None):
            super().__init__(**arguments)
        self._leave_on_error = leave_on_error
        self.waits = waits
        waits.before_exchange = self._give_up_lost
        self._checkpoint_transport.fetching.begun = self._give_up_hopeless
        if leave_on_error:
            self._pg.making.begun = self._give_up_hopeless
        self._members: frozenset[str] = frozenset()
        self._donor = ""
        self.lost: set[str] = set()
        self._last_step: int | None = None
        self.made_step = 0
        """The job has made this update, so that none up to it is made again."""
        self.watch: Watch | None = None
        self.points = FaultPoints()
        self._finite: Callable[[], bool] = lambda: True
        self._exchanging = False
        self._scale: tuple[Any, torch.Tensor, torch.Stream | None] | None = None
        self._cached_state: dict[str, object] | None = None

    def join(self) -> None:
        """Be a replica of the job from now on. Main thread, once, when training can begin at once."""
        assert self._manager is not None
        self._client: Any = WatchedClient(self._manager.start(self._connect_timeout, self._quorum_timeout), self)

    def lose(self, replica_id: str) -> None:
        """Wait no longer for a replica in the present group; the next one may do without it. From any thread."""
        self.lost.add(replica_id)
        if self.waits.exchanging:
            self._give_up_lost()
        else:
            self._give_up_hopeless()

    def joined(self, quorum: Any, lost_before: set[str]) -> None:
        """Be in a quorum. Who was lost before it was asked for, and is a member, has beaten since.

        The group is made anew if its members are others, if the last step failed in it, or if they went on without us:
        a lighthouse that was started again may give it the number that it had before.
        """
        self.lost -= lost_before
        members = frozenset(quorum.replica_ids)
        if members != self._members or self._commit_failures or quorum.heal:
            self._quorum_id = NO_QUORUM
        self._members = members
        self._donor = quorum.replica_ids[quorum.recover_src_replica_rank] if quorum.heal else ""

    def _loss(self) -> ConnectionError | None:
        """Why nothing comes of the present group, if one of it is lost."""
        gone = self._members & self.lost
        return ConnectionError(f"{min(gone).partition(':')[0]} is lost") if gone else None

    def _give_up_lost(self) -> None:
        if (loss := self._loss()) and self.errored() is None:
            self.report_error(loss)
            self._pg.abort()

    def _give_up_hopeless(self) -> None:
        """Make no group of which one is lost; fetch no state from one that is, or may serve none without a group."""
        if loss := self._loss():
            if self._leave_on_error:
                self._pg.making.give_up(loss)
            if self._donor in self.lost or not self._checkpoint_transport.answered:
                self._checkpoint_transport.fetching.give_up(loss)

    def set_watch(self, watch: Watch) -> None:
        """From now on, tell ``watch``."""
        self.watch = self._checkpoint_transport.watch = watch

    def set_points(self, points: FaultPoints) -> None:
        """From now on, do what is ordered at these."""
        self.points = self._checkpoint_transport.points = points

    def set_check(self, finite: Callable[[], bool]) -> None:
        """From now on, vote against updates that are not ``finite``. Called between the exchange and the vote."""
        self._finite = finite

    def hand_over(self, state: Callable[[], dict[str, Any]], take: Callable[[dict[str, Any]], None]) -> None:
        """From now on heals hand over this ``state``, and ``take`` it, instead of what TorchTitan registered."""
        self._user_state_dicts.clear()
        self._load_state_dict_fns.clear()
        self.register_state_dict_fn("replica", take, state)

    def cache_state(self) -> None:
        """Collect the state to hand out. Main thread only, between two steps."""
        self._cached_state = super()._manager_state_dict()

    def state(self) -> dict[str, object]:
        """The state as a healing replica would get it. Main thread only, between two steps."""
        return self._manager_state_dict()

    def end_after(self, step: int) -> None:
        """Commit no update beyond ``step``: the others may be gone, and alone we would write a history of our own."""
        self._last_step = step

    def start_quorum(self, *args: Any, **options: Any) -> None:
        self._exchanging = False
        self._scale = None
        super().start_quorum(*args, **options)

    def wait_quorum(self) -> None:
        with self.waits.for_peers():
            super().wait_quorum()

    def allreduce(self, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if self.errored() is None:
            self.wait_quorum()  # whose members are asked for next
            self._give_up_lost()
        if not self._exchanging and self.errored() is None:
            self._exchanging = True
            self._begin_exchange(tensor)
            one = torch.ones(1, device=tensor.device)
            stream = torch.accelerator.current_stream() if torch.accelerator.is_available() else None
            self._scale = super().allreduce(one), one, stream
        return super().allreduce(tensor, *args, **options)

    def gradient_scale(self) -> float | None:
        """What a 1 of each replica came back as from this step's exchange, which scales gradients likewise.

        1 when the sum is divided by the number of those who contributed. None when nothing was exchanged, or in vain.
        """
        if self._scale is None or self.errored() is not None:
            return None
        work, one, stream = self._scale
        with get_stream_context(stream):  # that of the gradients: TorchFT wants no other to wait
            work.wait()
            return float(one)

    def _begin_exchange(self, gradient: torch.Tensor) -> None:
        """Fault points at the first exchange of a step; ``gradient`` is still this replica's own."""
        self.wait_quorum()
        step = self._step + 1
        without = () if self.is_participating() else HARMS
        for harmed in self.points.at("before_allreduce", step, without):
            HARMS[harmed](gradient)
        try:
            self.points.at("in_allreduce", step)
        except Ordered as error:  # as TorchFT takes an exception of the process group
            self._logger.exception(f"got exception in all reduce -- skipping remaining: {error}")
            self.report_error(error)

    def should_commit(self, timeout: timedelta | None = None) -> bool:
        if self._last_step is not None and self._step >= self._last_step:
            self.report_error(RuntimeError(f"the job ends after step {self._last_step}"))
        elif self.errored() is None and not self._healing and self._step < self.made_step:
            error = f"the job has made step {self.made_step}, and nobody is left who has it: start it again"
            self.report_error(RuntimeError(error))
        elif self.errored() is None and not self._finite():
            super().report_error(ArithmeticError("the gradient norm is not a finite number"))
        committed = bool(super().should_commit(timeout))
        if self.errored() is not None and self._leave_on_error:
            self._pg.abort()  # again: the group may have been in the making, and is made now
        return committed

    def report_error(self, e: Exception) -> None:
        """Note the error; over Gloo, also leave the group, so that no peer waits for us until its timeout."""
        super().report_error(e)
        if self._leave_on_error:
            self._pg.abort()

    def _manager_state_dict(self) -> dict[str, object]:
        return super()._manager_state_dict() if self._cached_state is None else self._cached_state

    def _apply_pending_state_dict(self) -> None:
        received = self._pending_state_dict is not None
        super()._apply_pending_state_dict()
        if received and self.watch is not None:
            self.watch.healed(self._step)
