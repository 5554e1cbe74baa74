"""One device as a run sees it: the player's object, what it was given, and the result that it holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import array as new_array

from lib.engine.collectives import Array
from lib.engine.metering.arrays import Block, lend, own, plain
from lib.engine.metering.meter import Meter
from lib.engine.transports.base import Port

from .streams import Inputs, Output


class Nothing:
    """The argument of a method that takes none. Its only instance is `NOTHING`."""


NOTHING = Nothing()


class Lent:
    """Parameters that a device may look at for one call; what it keeps of them is charged to it."""

    def __init__(self, tree: Any, meter: Meter | None) -> None:
        self.blocks: list[weakref.ref[Block]] = []
        self.tree = mapped(tree, lambda array: self._lend(array, meter))

    def _lend(self, array: Array, meter: Meter | None) -> Array:
        if meter is None:
            view = array.view()
            view.flags.writeable = False
            return view
        counted, block = lend(array, meter)
        self.blocks.append(weakref.ref(block))
        return counted

    def settle(self) -> None:
        """Charges what the device still holds."""
        self.tree = None
        for ref in self.blocks:
            block = ref()
            if block is not None:
                block.charge()


class Device:
    """The player's object on one port. It keeps the result of its last call until the next has returned: the
    output that stays on a device while the step goes on."""

    def __init__(self, cls: type, port: Port) -> None:
        self.cls = cls
        self.port = port
        self.player: Any = None
        self.held: Any = None

    def make(self, args: Sequence[Any], kwargs: Any) -> None:
        self.player = self.cls.__new__(self.cls, *args, **kwargs)
        self.player._port = self.port
        self.player.__init__(*args, **kwargs)

    def call(self, method: str, box: list[Any]) -> Any:
        """Calls a method of the player's with what is in the box; a copy of what it returns, with plain arrays."""
        lent = box[0] if isinstance(box[0], Lent) else None
        if lent is not None:
            box[0], lent.tree = lent.tree, None
        function = getattr(self.player, method)
        self.held = function() if box[0] is NOTHING else function(box.pop())
        if lent is not None:
            lent.settle()
        return mapped(self.held, outside)

    def loop(self, source: Inputs, sink: Output) -> None:
        self.player.inference_loop(source.reader(self.port), sink)


def argument_for(x: Any, lent: bool, meter: Meter | None) -> Any:
    """What a device is called with: copies of its own, charged to it; or parameters that are only lent."""
    if lent:
        return Lent(x, meter)
    return mapped(x, lambda array: inside(array, meter))


def inside(array: Array, meter: Meter | None) -> Array:
    copied = new_array(array)
    return copied if meter is None else own(copied, meter)


def outside(array: Array) -> Array:
    return new_array(plain(array))


def mapped(tree: Any, function: Callable[[Array], Any]) -> Any:
    """The same dictionaries, lists and tuples with `function` of each array in them."""
    if isinstance(tree, np.ndarray):
        return function(tree)
    if isinstance(tree, dict):
        return {key: mapped(value, function) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(mapped(value, function) for value in tree)
    return tree


def unread_text(unread: Sequence[tuple[int, int, int]]) -> str:
    """What is said of messages left over: (from, to, how many)."""
    told = [f"{n} from device {source} to device {to}" for source, to, n in unread]
    return f"messages were sent and never received: {', '.join(told)}; receive them, or do not send them"
