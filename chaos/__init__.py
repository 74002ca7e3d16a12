"""Chaos and resilience testing for fault-tolerant PyTorch training.

The flow, each arrow leaving a file behind: experiment -> plan -> journal -> verdict.
This package knows nothing of torch; it meets the job under test only in data.
"""
