"""The monitors that come with torchchaos, one file each.

A monitor derives `chaos.api.Monitor` and judges one property of a run from its journal. To add one, add a file.
All of them keep the same rules: a violation that was seen is FAIL; what had to be seen and was not is UNKNOWN; what
happens once drain has begun counts against nobody; thresholds carry their units in their names.
"""
