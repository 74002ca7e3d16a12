"""The agent: makes injections beside their targets and holds each only while its lease is renewed.

    runner -- client --(Unix socket, JSON lines)--> server -- leases -- linux/* -- the kernel
                                                                 |
                                                              ledger, written before the kernel is touched

Whatever dies, every fault ends. A client that dies renews no more: its leases run out. Of an agent that is killed,
drops end in the kernel by themselves and a disk is emptied with the file the agent held open; links, queues, limits and
stopped processes are given back by the next agent on the same ledger, before it takes requests. So whoever starts the
agent starts it again when it ends. A second process that waits for the first to die was left out: it can die with it,
and the restart has to clear up all the same.
"""
