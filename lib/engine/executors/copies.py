"""Copies arrays into a device and out of it, so that devices in one process share no more memory than others would.

Arguments are charged to the device's meter. Parameters are only lent for loading, because a device copies its part.
"""

import weakref
from collections.abc import Callable
from typing import Any

from lib.engine.collectives import Array
from lib.engine.metering.arrays import LentBlock
from lib.engine.transports.base import Port


class NoArgument:
    def __reduce__(self) -> str:
        return "NO_ARGUMENT"


NO_ARGUMENT = NoArgument()
"""The argument of a method that takes no argument."""


class LentParameters:
    """Read-only parameters for one call; any that the device keeps are charged to it."""

    def __init__(self, tree: Any, port: Port) -> None:
        self.blocks: list[weakref.ref[LentBlock]] = []
        self.tree = map_arrays(tree, lambda array: self._lend(array, port), port)

    def _lend(self, array: Array, port: Port) -> Array:
        lent, block = port.library.lend(array, port.meter)
        if block is not None:
            self.blocks.append(weakref.ref(block))
        return lent

    def settle(self) -> None:
        """Charges the arrays that the device still refers to."""
        self.tree = None
        for ref in self.blocks:
            block = ref()
            if block is not None:
                block.charge()


def argument_for(x: Any, lent: bool, port: Port) -> Any:
    """An argument with copies of its arrays, charged to the meter of `port`; or lent parameters."""
    return LentParameters(x, port) if lent else map_arrays(x, lambda array: copy_in(array, port), port)


def copy_in(array: Array, port: Port) -> Array:
    """A copy that belongs to a device."""
    copied = port.library.adopted(array)
    return copied if port.meter is None else port.library.charged(copied, port.meter)


def copies_out(tree: Any, port: Port) -> Any:
    """A result with copies of its arrays, which belong to no device."""
    return map_arrays(tree, port.library.copy_out, port)


def map_arrays(tree: Any, function: Callable[[Array], Any], port: Port) -> Any:
    """Applies `function` to each array in nested dictionaries, lists and tuples (a pytree map)."""
    if isinstance(tree, port.library.array_types):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_arrays(value, function, port) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map_arrays(value, function, port) for value in tree)
    return tree
