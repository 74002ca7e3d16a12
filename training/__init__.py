"""A fault-tolerant training job: TorchTitan trains, TorchFT keeps the replicas in step, Monarch starts them.

Run it alone with ``python -m training run``; it needs no chaos to start, train or recover.
What it tells the outside it tells in data: ``python -m training describe`` and one file of JSON lines per member.
"""
