"""TorchFT's lighthouse, alone or inside the controller.

TorchFT's extension module is loaded without its package, which would import torch: a lighthouse is then back in a
tenth of a second after its death. A new lighthouse counts quorums from 1 again and knows no replica.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import timedelta
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

from training import events
from training.settings import Settings, UserError


def start(bind: str, min_replicas: int, settings: Settings) -> Any:
    """A running lighthouse at ``host:port``; keep the result. Raises UserError when TorchFT is not installed."""
    return _torchft_extension().LighthouseServer(
        bind=bind,
        min_replicas=min_replicas,
        join_timeout_ms=settings.join_timeout_ms,
        quorum_tick_ms=settings.quorum_tick_ms,
        heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
    )


class Voucher:
    """Beats to a lighthouse for replicas whose own heartbeats may be late. It need not be there yet, or always."""

    def __init__(self, address: str, settings: Settings) -> None:
        self._address = address
        self._timeout = timedelta(milliseconds=settings.heartbeat_timeout_ms)
        self._client: Any = None

    def vouch(self, replica_ids: Iterable[str]) -> bool:
        """Say that these live; whether the lighthouse heard it. Blocks for a heartbeat timeout each, at most."""
        try:
            if self._client is None:
                self._client = _torchft_extension().LighthouseClient(self._address, self._timeout)
            for replica_id in replica_ids:
                self._client.heartbeat(replica_id, self._timeout)
        except (RuntimeError, TimeoutError):  # of the two TorchFT raises either, by how it was not heard
            return False
        return True


def main(*, name: str, incarnation: int, bind: str, events_path: str, min_replicas: int, settings: Settings) -> None:
    """Serve until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = start(bind, min_replicas, settings)
    writer = events.Writer(events_path, member=name, incarnation=incarnation)
    writer.emit(events.LighthouseStarted(address=bind))
    print(f"lighthouse at {bind}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


def _torchft_extension() -> Any:
    package = PathFinder.find_spec("torchft")
    if package is None or package.submodule_search_locations is None:
        raise UserError("torchft is not installed; type pip install 'torchchaos[training]'")
    found = PathFinder.find_spec("_torchft", package.submodule_search_locations)
    assert found is not None and found.loader is not None, "torchft without its extension"
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
