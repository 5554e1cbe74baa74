"""An engine class graded with each device in a process of its own; the wire between the devices belongs to the judge.

`device_process` runs the player's code. `judged_transport` never does: every array passes through it and is
counted there.
"""
