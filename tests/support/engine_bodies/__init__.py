"""Tests that every transport must pass: bodies that run on four devices, in process and under mpiexec alike.

A body is a function that takes `on` alone, the name of a transport, and returns nothing. Run as a program
(by mpiexec), this package runs those that it is given.
"""

from collections.abc import Callable
from inspect import isfunction

from . import arrays, endings, figures, messages, programs, refusals, streams

MODULES = (arrays, messages, streams, figures, endings, refusals, programs)
IS_BODY = {"on": str, "return": None}
BODIES: dict[str, Callable[[str], None]] = {
    name: found
    for module in MODULES
    for name, found in vars(module).items()
    if isfunction(found) and found.__annotations__ == IS_BODY
}
EXHAUSTIVE = ("all_memory_orders", "many_launches", "many_random_programs")
