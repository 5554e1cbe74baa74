"""Tests that every transport must pass: bodies that run on four devices, in process and under mpiexec alike.

A body takes `on`, the name of a transport. Run as a program (by mpiexec), this package runs those that it is given.
"""

from . import arrays, endings, figures, messages, programs, refusals, streams

MODULES = (arrays, messages, streams, figures, endings, refusals, programs)
BODIES = {body.__name__: body for module in MODULES for body in module.BODIES}
EXHAUSTIVE = ("all_memory_orders", "many_launches", "many_random_programs")
