"""Copies arrays into a device and out of it, so that devices in one process share no more memory than others would.

Arguments are charged to the device's meter. Parameters are only lent for loading, because a device copies its part.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from numpy import array as new_array
from numpy import ndarray

from lib.engine.collectives import Array
from lib.engine.metering.arrays import LentBlock, as_metered, lend, plain_view
from lib.engine.metering.meter import Meter


class NoArgument:
    """The type of `NO_ARGUMENT`."""


NO_ARGUMENT = NoArgument()
"""The argument of a method that takes no argument."""


class LentParameters:
    """Read-only parameters for one call; any that the device keeps are charged to it."""

    def __init__(self, tree: Any, meter: Meter | None) -> None:
        self.blocks: list[weakref.ref[LentBlock]] = []
        self.tree = map_arrays(tree, lambda array: self._lend(array, meter))

    def _lend(self, array: Array, meter: Meter | None) -> Array:
        if meter is None:
            view = array.view()
            view.flags.writeable = False
            return view
        view, block = lend(array, meter)
        self.blocks.append(weakref.ref(block))
        return view

    def settle(self) -> None:
        """Charges the arrays that the device still refers to."""
        self.tree = None
        for ref in self.blocks:
            block = ref()
            if block is not None:
                block.charge()


def argument_for(x: Any, lent: bool, meter: Meter | None) -> Any:
    """An argument with copies of its arrays, charged to `meter`; or lent parameters."""
    if lent:
        return LentParameters(x, meter)
    return map_arrays(x, lambda array: copy_in(array, meter))


def copy_in(array: Array, meter: Meter | None) -> Array:
    """A copy that belongs to a device."""
    copied = new_array(array)
    return copied if meter is None else as_metered(copied, meter)


def copy_out(array: Array) -> Array:
    """A plain copy of a device's array."""
    return new_array(plain_view(array))


def map_arrays(tree: Any, function: Callable[[Array], Any]) -> Any:
    """Applies `function` to each array in nested dictionaries, lists and tuples (a pytree map)."""
    if isinstance(tree, ndarray):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_arrays(value, function) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map_arrays(value, function) for value in tree)
    return tree
