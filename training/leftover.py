"""The main process of a leftover: a trainer of another job that asks this job's lighthouse for its quorum.

It stands for a run that nobody ended: its controller is gone, so nobody tells it anything or starts it again; what it
trains is what a replica of this job would. No platform starts it with the job. SIGTERM ends it.
"""

from __future__ import annotations

import os
import signal

from training import announce, process
from training.settings import Job

GONE_PORT = 9
"""Where nobody listens."""


def main(
    *,
    name: str,
    incarnation: int,
    address: str,
    host: str,
    data_interface: str,
    lighthouse: str,
    events: str,
    scratch: str,
    job: Job,
) -> None:
    """Train in a child process, as replicas do, until that ends."""
    os.environ.update(GLOO_SOCKET_IFNAME=data_interface, NCCL_SOCKET_IFNAME=data_interface, HF_HOME=scratch)
    worker = announce.Worker(
        name=name,
        incarnation=incarnation,
        fresh=False,
        monarch="",
        host=host,
        data_interface=data_interface,
        doors=[],
        events=events,
        scratch=scratch,
        controller=f"{address}:{GONE_PORT}",
    )
    ends = {*process.ENDING, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    if os.fork() == 0:
        from training.life import Life

        Life(announce.Assignment(job=job, worker=worker, lighthouse=f"http://{lighthouse}")).run()
        os._exit(0)
    signal.sigwait(ends)
