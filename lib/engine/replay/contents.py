"""Says what each tensor of a replay holds: the rows of a weight or the tokens of microbatches that a value of the game
stands for."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from lib.engine.collectives import Array
from lib.errors import TraceError
from lib.values.kinds import Activation, ActivationGrad, Batched, Parked, Scalar, Sharded, Value

from ..words import SAYS
from .workload import Shapes


class Content(NamedTuple):
    """What a tensor holds. Its `places` are rows of a weight in a tensor of (rows, hidden), or tokens in a tensor of
    (batches, tokens, width). Where microbatches have lengths, their tokens follow each other: (1, tokens, width). The
    tokens of each begin at a multiple of the full length."""

    value: Value
    places: tuple[int, ...]
    shape: tuple[int, ...]
    vocabulary: tuple[int, ...] = ()
    """Of scores of a split head: the rows of the head that they belong to."""
    tier: str = ""
    """The tier where it is parked; empty for a tensor on the device."""

    @property
    def axis(self) -> int:
        """The axis along which the tensor is split: its rows or its tokens."""
        return 0 if len(self.shape) == 2 else 1

    @property
    def batches(self) -> list[int]:
        """The microbatches of an activation or its gradient, in the order of the tensor."""
        assert isinstance(self.value, Batched)
        return sorted(self.value.batches)


Result = tuple[int | None, Content, Array]
"""A result that a rank has declared: the layer of a final weight, ~layer of a final copy, or None for an output; its
content; the tensor."""


class TensorExchange(NamedTuple):
    """One tensor's part in a collective: the group, this rank's position in it, and all ranks' inputs and results."""

    group: tuple[int, ...]
    place: int
    inputs: Sequence[Content]
    results: Sequence[Content]


def content_of(value: Value, shapes: Shapes) -> Content:
    """What the tensor of a value holds.

    Raises:
        TraceError: the rows or tokens cannot be cut into the value's shards.
    """
    if isinstance(value, Parked):
        return content_of(value.value, shapes)._replace(tier=value.tier)
    if isinstance(value, Scalar):
        return Content(value, (0,), (1, 1))
    if isinstance(value, Sharded):
        rows = _places(shapes.rows(value.layer), value.shards, value.total)
        return Content(value, rows, (len(rows), shapes.hidden))
    assert isinstance(value, Batched)
    reader = value.layer + isinstance(value, ActivationGrad)
    counts = [shapes.tokens(batch) for batch in sorted(value.batches)] if shapes.lengths else [shapes.length]
    width = shapes.width(reader) or shapes.hidden
    scored: tuple[int, ...] = ()
    if value.vocabulary and reader == value.layers:
        scored = _places(shapes.rows(value.layers - 1), value.shards, value.total)
        share, width = (frozenset((0,)), 1), len(scored)
    else:
        share = value.shards, value.total
        if value.vocabulary:
            width = width_with_sums(shapes.hidden)
    tokens = tuple([i * shapes.length + at for i, count in enumerate(counts) for at in _places(count, *share)])
    heads = 1 if value.heads is None else value.heads[1]
    batches = 1 if shapes.lengths else len(value.batches)
    return Content(value, tokens, (batches, len(tokens), width // heads), scored)


def is_output(content: Content) -> bool:
    """True for an output of inference, which has microbatches; other results are weights."""
    return isinstance(content.value, Activation)


def width_with_sums(hidden: int) -> int:
    """Numbers per token in the input gradient that a split head makes."""
    return 2 * hidden + 1


@cache
def _places(count: int, shards: frozenset[int], total: int) -> tuple[int, ...]:
    """Positions of some of `total` equal shards, out of `count` rows or tokens."""
    if count % total:
        raise TraceError(SAYS("no equal shards", count=count, total=total))
    size = count // total
    return tuple([place for shard in sorted(shards) for place in range(shard * size, (shard + 1) * size)])


def index_of(have: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    """The index of the wanted numbers among those that exist: a slice if they are adjacent."""
    if have == wanted:
        return slice(None)
    place = {number: i for i, number in enumerate(have)}
    places = [place[number] for number in wanted]
    return slice(places[0], places[-1] + 1) if places == [*range(places[0], places[-1] + 1)] else places


def taken(tensor: Array, content: Content, wanted: tuple[int, ...]) -> Array:
    """The wanted rows or tokens of a tensor, as a view where possible."""
    return tensor[(*[slice(None)] * content.axis, index_of(content.places, wanted))]


def joined(tensors: Sequence[Array], contents: Sequence[Content], wanted: Content, result: Array) -> Array:
    """Writes the rows or tokens of all tensors into `result`."""
    for tensor, content in zip(tensors, contents):
        result[(*[slice(None)] * wanted.axis, index_of(wanted.places, content.places))] = tensor
    return result
