"""The faults that come with torchchaos, one file each.

A fault derives `chaos.api.Fault`, carries its arguments as fields and turns a target into injections. To add one, add
a file: the first line of the docstring says what it does, the rest why it happens in real clusters.
"""
