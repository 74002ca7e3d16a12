"""The main process of a replica's pod: a Monarch worker host that announces itself to the controller.

It listens on a fresh port with a fresh service id in every life, because Monarch cannot attach twice to the same.
It trains nothing: the controller has Monarch start an actor here (``actor``), which has its trainer from the member's
nursery (``nursery``) if there is one. It ends on SIGTERM, when its nursery ends, or when the controller says so because
no trainer lives here; whoever started it then starts its next life.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from training import announce, doors, nursery, process

log = logging.getLogger(__name__)


def main(
    *,
    name: str,
    incarnation: int,
    address: str,
    host: str,
    data_interface: str,
    controller: str,
    events: str,
    scratch: str,
    nursery_of: str | None,
) -> None:
    """Serve until ended. Never returns. ``nursery_of``: the recipe for which to have a nursery."""
    signal.pthread_sigmask(signal.SIG_BLOCK, process.ENDING)  # before Monarch makes threads; PID 1 has no default
    os.environ.update(GLOO_SOCKET_IFNAME=data_interface, NCCL_SOCKET_IFNAME=data_interface, HF_HOME=scratch)
    take_one_gpu(name)
    if nursery_of is not None:
        children = nursery.start(nursery_of, scratch)
        threading.Thread(target=lambda: leave(f"its nursery ended with {children.wait()}"), daemon=True).start()
    from monarch._src.job.service_identity import new_service_proc_id, service_proc_addr
    from monarch.actor import start_worker_loop_forever

    channel = f"tcp://{address}:{process.free_port(address)}"
    monarch = service_proc_addr(channel, new_service_proc_id())
    serving = start_worker_loop_forever(address=monarch, ca="trust_all_connections")
    hello = announce.Worker(
        name=name,
        incarnation=incarnation,
        fresh=True,
        monarch=monarch,
        host=host,
        data_interface=data_interface,
        doors=doors.open_door(address, data_interface),
        events=events,
        scratch=scratch,
        controller=controller,
    )
    announce.Link(controller, Hellos(hello), told).start()
    log.info("%s#%d serves at %s", name, incarnation, channel)
    end = signal.sigwait(process.ENDING)
    del serving
    leave(f"signal {end}")


def take_one_gpu(name: str) -> None:
    """Where several are in sight and nobody has chosen (a device plugin has): the one with the number in ``name``."""
    there = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if there > 1:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(int(name.rpartition("-")[2]) % there))


class Hellos:
    """The worker's first lines: fresh in the first one that a controller may have read, not in later ones."""

    def __init__(self, hello: announce.Worker) -> None:
        self._next = hello

    def __call__(self) -> announce.Worker:
        hello, self._next = self._next, msgspec.structs.replace(self._next, fresh=False)
        return hello


def told(message: announce.FromController) -> None:
    """On the link's thread: the only thing a controller tells a worker host is to end."""
    if isinstance(message, announce.Exit):
        leave(message.reason)


def leave(reason: str) -> None:
    """End now; the trainer process notices and ends too."""
    print(f"worker ends: {reason}", file=sys.stderr, flush=True)
    os._exit(0)
