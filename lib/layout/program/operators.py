"""Operators: kind, shapes, a letter for each dimension, flops, and the computation of a piece on numpy.

An operator is written in einsum notation: matmul is "mk,kn->mn". A letter that the output lacks is contracted, and
splitting it leaves summands. Letters that may not be split (the axis of a softmax) are not `free`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, prod
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.pieces import Array

KINDS = tuple("matmul einsum add relu gelu softmax reduce_sum reduce_mean reshape transpose gather".split())

FLOPS = {"add": 1, "relu": 1, "gelu": 8, "softmax": 5, "reduce_sum": 1, "reduce_mean": 1}
"""Floating-point operations per element; a product has two for each combination of letters."""

DIMENSION_PRESERVING = ("add", "relu", "gelu", "softmax")
"""Kinds whose output has the dimensions of their first input."""


@dataclass(frozen=True)
class Operator:
    """One operator of a graph: tensors by name, dimensions by letter. Its output has its own name.

    A dimension of size 1 that is broadcast has the letter "1".
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    input_letters: tuple[tuple[str, ...], ...]
    output_letters: tuple[str, ...]
    free: frozenset[str]
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def letters(self) -> tuple[str, ...]:
        """All letters, inputs first, each once."""
        every = (letter for letters in (*self.input_letters, self.output_letters) for letter in letters)
        return tuple(dict.fromkeys(letter for letter in every if letter != "1"))

    @property
    def contracted(self) -> tuple[str, ...]:
        """Free letters that the output lacks."""
        return tuple(letter for letter in self.letters if letter in self.free and letter not in self.output_letters)

    def sizes(self, letter: str) -> tuple[int, ...]:
        """The sizes of the dimensions of a letter: one, or more where a reshape merges dimensions."""
        found: dict[int, None] = {}
        for shape, letters in zip((*self.input_shapes, self.output_shape), (*self.input_letters, self.output_letters)):
            found.update({size: None for size, one in zip(shape, letters) if one == letter})
        return tuple(found)

    def divides(self, letter: str, parts: int) -> bool:
        """True if the letter may be split into that many parts."""
        return parts == 1 or (letter in self.free and all(size % parts == 0 for size in self.sizes(letter)))

    def flops(self, parts: dict[str, int]) -> int:
        """Floating-point operations of one device when each letter is split into that many parts."""
        if self.kind == "matmul" or (self.kind == "einsum" and len(self.inputs) > 1):
            return 2 * prod(self.sizes(letter)[0] // parts.get(letter, 1) for letter in self.letters)
        shape, letters = self.input_shapes[0], self.input_letters[0]
        if self.kind == "add":
            shape, letters = self.output_shape, self.output_letters
        return FLOPS.get(self.kind, 0) * prod(n // parts.get(letter, 1) for n, letter in zip(shape, letters))

    def compute(self, arrays: list[Array], local_shape: tuple[int, ...], offset: int = 0) -> Array:
        """The output's piece from the inputs' pieces, a summand where a contracted letter is split.

        `local_shape` is that of the output; `offset` is where this part of a gather's table starts.
        """
        settings = dict(self.settings)
        first = arrays[0]
        made: Array
        match self.kind:
            case "matmul":
                made = _turned(first, settings["transpose_a"]) @ _turned(arrays[1], settings["transpose_b"])
            case "einsum":
                made = np.einsum(settings["spec"], *arrays)
            case "add":
                made = first + arrays[1]
            case "relu":
                made = np.maximum(first, 0)
            case "gelu":
                made = (0.5 * first * (1 + _erf(first / np.sqrt(2.0)))).astype(first.dtype)
            case "softmax":
                made = _softmax(first, settings["axis"])
            case "reduce_sum":
                made = first.sum(axis=settings["axis"])
            case "reduce_mean":
                # divide by the full length, so that the summands of a split axis add up to the mean
                made = first.sum(axis=settings["axis"]) / self.input_shapes[0][settings["axis"]]
            case "reshape":
                made = first.reshape(local_shape)
            case "transpose":
                made = first.transpose(settings["order"])
            case "gather":
                made = _gathered(first, arrays[1].astype(np.int64) - offset)
            case _:
                raise LayoutError(f"there is no operator '{self.kind}'; there are {', '.join(KINDS)}")
        return made if made.ndim else np.array(made)  # numpy returns a scalar instead of a 0-d array


def _turned(matrix: Array, turn: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if turn else matrix


def _softmax(x: Array, axis: int) -> Array:
    raised = np.exp(x - x.max(axis=axis, keepdims=True))
    made: Array = raised / raised.sum(axis=axis, keepdims=True)
    return made


def _gathered(table: Array, rows: Array) -> Array:
    """Rows of a table; zeros for rows that are not in this part of the table."""
    here = (rows >= 0) & (rows < len(table))
    return np.where(here[..., None], table[np.where(here, rows, 0)], 0).astype(table.dtype)


_erf = np.vectorize(erf, otypes=[np.float64])
