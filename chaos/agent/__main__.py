"""Run an agent.

    python -m chaos.agent --socket PATH --ledger DIR

It first gives back what a predecessor on the same ledger held, then listens. SIGTERM or SIGINT: everything is given
back, exit 0. SIGKILL: see the package. It does not start itself again; whoever started it does.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import anyio

from chaos.agent.ledger import Ledger, LedgerHeld
from chaos.agent.lifetime import hold_until_signal
from chaos.agent.server import Server


async def run(socket: Path, ledger: Ledger) -> None:
    """Until a signal asks for the end."""
    await hold_until_signal(ledger, lambda leases: Server(leases).serve(socket))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.agent", description="Hold injections under leases.")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen on")
    parser.add_argument("--ledger", type=Path, required=True, help="folder of the ledger, in memory best")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        ledger = Ledger(arguments.ledger)
    except LedgerHeld as error:
        print(error, file=sys.stderr)
        return 1
    anyio.run(run, arguments.socket, ledger)
    return 0


if __name__ == "__main__":
    sys.exit(main())
