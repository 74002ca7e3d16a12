"""The agent of one node: carries out the injections that custom resources ask for, and proves them on the node.

    API server -- `orders` (injections, run Leases) -- chaos.agent's leases -- the kernel
                        `pods` finds a pod's processes    `processes` ends and signals them

What is held under leases, the ledger and the kernel's part are those of the agent of local pods. A run's Lease that is
not seen renewed any more, for whatever reason, lets every lease of that run expire on this machine's clock.
"""
