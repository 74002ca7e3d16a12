"""Run the agent of a node, in a privileged pod of a DaemonSet.

    python -m chaos.platforms.kubernetes.agent --node NAME --ledger DIR

It first gives back what a predecessor on the same ledger held. SIGTERM: everything is given back, exit 0.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from functools import partial
from pathlib import Path

import anyio

from chaos.agent.leases import Leases
from chaos.agent.ledger import Ledger, LedgerHeld
from chaos.agent.lifetime import hold_until_signal
from chaos.platforms.kubernetes.agent.carried import Carried
from chaos.platforms.kubernetes.agent.heartbeat import beat
from chaos.platforms.kubernetes.agent.keeper import keep
from chaos.platforms.kubernetes.agent.orders import Orders
from chaos.platforms.kubernetes.agent.pods import NodePods
from chaos.platforms.kubernetes.client import connect
from chaos.platforms.local import kernel

CLONE_NEWCGROUP = 0x02000000


def serve(node: str, folder: Path) -> int:
    """Until a signal asks for the end; the exit status."""
    try:
        ledger = Ledger(folder)
    except LedgerHeld as error:
        print(error, file=sys.stderr)
        return 1
    anyio.run(_serve, node, ledger)
    return 0


async def _serve(node: str, ledger: Ledger) -> None:
    await hold_until_signal(ledger, partial(_follow, node))


async def _follow(node: str, leases: Leases) -> None:
    kube = connect()
    pods = NodePods()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat, kube, node, Carried(pods))
        tasks.start_soon(Orders(kube, node, leases, pods).run)


def see_all_groups() -> None:
    """Have cgroup paths told as the node sees them, where a container sees its own group as the root."""
    if "kubepods" in Path("/proc/self/cgroup").read_text():
        return
    fd = os.open("/proc/1/ns/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    kernel.setns(fd, CLONE_NEWCGROUP)
    os.close(fd)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.platforms.kubernetes.agent", description=__doc__)
    parser.add_argument("--node", required=True, help="name of this node in the cluster")
    parser.add_argument("--ledger", type=Path, required=True, help="folder of the ledger, in the node's memory")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    see_all_groups()
    importlib.import_module("kubernetes.config")  # It and the event loop take long to load, but a successor has them.
    anyio.run(anyio.sleep, 0)
    return keep(partial(serve, arguments.node, arguments.ledger))


if __name__ == "__main__":
    sys.exit(main())
