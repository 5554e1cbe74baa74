"""Operators: kind, shapes, a letter for each dimension, flops, and the computation of a piece on numpy.

An operator is written in einsum notation: matmul is "mk,kn->mn". A letter that the output lacks is contracted, and
splitting it leaves summands. Letters that may not be split (the axis of a softmax) are not `free`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.pieces import Array

from .on_arrays import BINARY, SLOPE, UNARY, Task, compute
from .on_arrays import KINDS as OTHERS

GRADS = tuple(f"{kind}_grad" for kind in SLOPE)
"""Kinds that multiply a gradient by the derivative of an operator that maps elements."""
OPTIMIZER = ("moments", "update", "store")
"""Kinds that end a training step; each is laid out as one copy of its weight."""
KINDS = tuple(kind for kind in (*UNARY, *BINARY, *OTHERS) if kind not in (*OPTIMIZER, "softmax_grad", "opaque"))
"""Kinds of operators that a program may have. `training` adds the others, and `from_jax` the opaque ones."""

COMBINING = (*BINARY, "compare", "select")
"""Kinds that combine elements; the other inputs are broadcast to the first."""

FLOPS = {
    **dict.fromkeys((*UNARY, *COMBINING, "reduce_sum", "reduce_max", "reduce_mean"), 1),
    **dict.fromkeys(("gelu", "silu", "tanh", "logistic", "erf"), 8),
    **dict.fromkeys(GRADS, 2),
    **{"gelu_grad": 12, "silu_grad": 12, "softmax": 5, "softmax_grad": 4, "moments": 3, "update": 4},
}
"""Floating-point operations per element; a product has two for each combination of letters."""

DIMENSION_PRESERVING = (*UNARY, *COMBINING, *GRADS, "softmax", "softmax_grad", "top_k")
"""Kinds whose output has the dimensions of their first input."""


def fills(size: int, parts: int, uneven: bool = False) -> bool:
    """True if a dimension has so many equal parts; if `uneven`, parts of which none is padding only."""
    return size % parts == 0 or (uneven and (parts - 1) * -(-size // parts) < size)


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
        return tuple(dict.fromkeys((*self.input_letters_once, *(x for x in self.output_letters if x != "1"))))

    @property
    def input_letters_once(self) -> tuple[str, ...]:
        """The letters of the inputs, each once."""
        every = {letter: None for letters in self.input_letters for letter in letters}
        return tuple(letter for letter in every if letter != "1")

    @property
    def contracted(self) -> tuple[str, ...]:
        """Free letters that the output lacks."""
        return tuple(letter for letter in self.letters if letter in self.free and letter not in self.output_letters)

    def sizes(self, letter: str) -> tuple[int, ...]:
        """The sizes of the dimensions of a letter: one, or more where a reshape merges dimensions."""
        sizes: dict[int, None] = {}
        for shape, letters in zip((*self.input_shapes, self.output_shape), (*self.input_letters, self.output_letters)):
            sizes.update({size: None for size, other in zip(shape, letters) if other == letter})
        return tuple(sizes)

    def divides(self, letter: str, parts: int, uneven: bool = False) -> bool:
        """True if the letter may be split into that many equal parts; if `uneven`, also into parts with padding of
        which none is padding only."""
        return self.splits(letter, parts) and all(fills(size, parts, uneven) for size in self.sizes(letter))

    def splits(self, letter: str, parts: int) -> bool:
        """True if the letter may be split into that many parts, padded where necessary.

        Where a reshape merges dimensions, their pieces have to be the same elements: of 6 rows of 4 in 4 parts, the
        first is 2 rows, which is 8 elements, but of 24 in 4 parts it is 6.
        """
        if parts == 1:
            return True
        first, *others = self.sizes(letter)
        return letter in self.free and all(-(-first // parts) * n == -(-n // parts) * first for n in others)

    @property
    def is_product(self) -> bool:
        """True for matrix products: what takes nearly all of the time."""
        return self.kind == "matmul" or (self.kind == "einsum" and len(self.inputs) > 1)

    def flops(self, parts: dict[str, int]) -> int:
        """Floating-point operations of a device without padding when each letter is split into that many parts."""
        if self.is_product:
            return 2 * prod(-(-self.sizes(letter)[0] // parts.get(letter, 1)) for letter in self.letters)
        shape, letters = self.input_shapes[0], self.input_letters[0]
        if self.kind in COMBINING:
            shape, letters = self.output_shape, self.output_letters
        return FLOPS.get(self.kind, 0) * prod(-(-n // parts.get(letter, 1)) for n, letter in zip(shape, letters))

    def compute(self, arrays: list[Array], local_shape: tuple[int, ...], offset: int = 0) -> Array:
        """The output's piece from the inputs' pieces, a summand where a contracted letter is split.

        `local_shape` is the output's; `offset` is where this part of a table starts.
        """
        return compute(self.kind, Task(arrays, dict(self.settings), local_shape, self.input_shapes, offset))


Letters = tuple[str, ...]


def in_order(n: int) -> Letters:
    """Letters for n dimensions that an operator preserves."""
    return tuple("ijlmnopq"[:n])


def of_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Letters, Letters, list[str]]:
    """Letters before and after a reshape, and the free ones.

    Both shapes are divided into groups of equal products; the first dimensions of a group share a free letter.
    Dimensions of size 1 belong to no group.
    """
    left, right = [f"s{i}" for i in range(len(before))], [f"t{i}" for i in range(len(after))]
    free: list[str] = []
    many = [[dim for dim, size in enumerate(shape) if size > 1] for shape in (before, after)]
    i = j = 0
    while i < len(many[0]):
        a, b = before[many[0][i]], after[many[1][j]]
        shared = f"g{len(free)}"
        free.append(shared)
        left[many[0][i]] = right[many[1][j]] = shared
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[many[0][i]], i + 1
            else:
                b, j = b * after[many[1][j]], j + 1
    return tuple(left), tuple(right), free


def of_einsum(
    name: str, spec: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Letters, ...], Letters, dict[str, int]]:
    """Of "bd,df->bf": the letters of each input and of the output, and the size of each."""
    terms, arrow, output = str(spec).replace(" ", "").partition("->")
    inputs = terms.split(",")
    if not arrow or not all(term.isalpha() for term in (*inputs, output) if term):
        raise LayoutError(f"{name}: an einsum has one letter per dimension, such as 'bd,df->bf'; got {spec!r}")
    if len(inputs) != len(shapes):
        raise LayoutError(f"{name}: {spec!r} is for {len(inputs)} inputs; got {len(shapes)}")
    sizes: dict[str, int] = {}
    for term, shape in zip(inputs, shapes):
        if len(term) != len(shape):
            raise LayoutError(f"{name}: '{term}' in {spec!r} has {len(term)} letters for an input of shape {shape}")
        for letter, size in zip(term, shape):
            if sizes.setdefault(letter, size) != size:
                raise LayoutError(
                    f"{name}: '{letter}' in {spec!r} is {sizes[letter]} in one input and {size} in another"
                )
    for term in (*inputs, output):
        twice = [letter for letter in term if term.count(letter) > 1]
        if twice:
            raise LayoutError(f"{name}: '{term}' in {spec!r} has '{twice[0]}' twice; a diagonal cannot be split")
    missing = [letter for letter in output if letter not in sizes]
    if missing:
        raise LayoutError(f"{name}: '{missing[0]}' in the output of {spec!r} does not occur in any input")
    return tuple(map(tuple, inputs)), tuple(output), sizes
