"""Instructions for devices: a plan lowered to what each device moves, computes and reduces, in order.

All devices follow the same list, each with its own pieces (SPMD). A plan creates it and the executor on the engine
reads it, so neither has to know the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lib.layout.layouts.pieces import Array
from lib.layout.layouts.tensor_layout import TensorLayout, parts
from lib.layout.redistribution.steps import Step


class OperandFetch(NamedTuple):
    """How an input comes to the layout that an operator needs: by its own steps, or as an earlier one left it."""

    steps: tuple[Step, ...]
    copy: int | None = None
    """The number of a moved copy that several operators use: the first one moves it, the others find it."""
    last: bool = True
    """True if nobody uses the copy afterwards."""
    source: int | None = None
    """The number of the copy from which it moves, if it does not move from where the tensor lives."""
    source_ends: bool = False
    """True if nobody uses that copy afterwards."""


class Instruction(NamedTuple):
    """One operator: bring each input to the layout that it needs, compute the piece, reduce it."""

    output: str
    inputs: tuple[str, ...]
    fetches: tuple[OperandFetch, ...]
    """For each input, how it comes to its layout in `wanted`."""
    wanted: tuple[TensorLayout, ...]
    compute: Callable[[int, list[Array]], Array]
    """Maps a device's number and its pieces of the inputs to its piece of the output, not yet reduced."""
    reduction: tuple[Step, ...]
    ends: tuple[str, ...] = ()
    """Tensors that are freed when the piece is computed, before it is reduced."""


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """A whole plan for `devices` devices: the layouts of its sources, and the instructions in order."""

    devices: int
    inputs: Mapping[str, TensorLayout]
    parameters: Mapping[str, TensorLayout]
    instructions: tuple[Instruction, ...]

    def prepare(self) -> None:
        """Computes the tables that devices look up. Otherwise the first device to look would be charged for them."""
        for layout in (*self.inputs.values(), *self.parameters.values()):
            parts(layout)
        for instruction in self.instructions:
            for layout in instruction.wanted:
                parts(layout)
            for step in (*(step for fetch in instruction.fetches for step in fetch.steps), *instruction.reduction):
                step.prepare()
