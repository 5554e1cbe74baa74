"""Moves of a tensor to its readers, as variables of an integer program."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from lib.layout.layouts.tensor_layout import TensorLayout

from .highs import Terms

Layouts = dict[Hashable, tuple[TensorLayout, Terms]]
"""By placement: a layout, and the variables of which one is 1 if a tensor has it."""


class Move(NamedTuple):
    """A move of a reader: from the layout that the tensor has, or from a `copy` that an earlier reader has taken."""

    source: Hashable
    given: TensorLayout
    target: Hashable
    wanted: TensorLayout
    copy: bool
    cost: float


class ReaderMoves(NamedTuple):
    """An operator and the number of an input, the layouts in which it may need that, and the variables of its moves."""

    operator: str
    place: int
    wanted: Layouts
    moves: dict[int, Move]
