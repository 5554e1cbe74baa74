"""Labels that say what a tensor of a replay holds: rows of a weight or tokens of microbatches, on the device or a
tier."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lib.engine.collectives import Array
from lib.errors import TraceError


class Rows(NamedTuple):
    """Rows of a "weight", an optimizer "state" or a weight's "grad" that has `of` rows in all: a tensor of (rows,
    hidden). The "norm" of gradients is one number."""

    kind: str
    places: tuple[int, ...]
    of: int
    copies: int = 1
    """The number of copies whose changes an outer gradient adds."""


class Tokens(NamedTuple):
    """Tokens of an activation or its gradient in a step's microbatches: a tensor of (batches, tokens, hidden). Where
    microbatches have lengths, their tokens follow each other: (1, tokens, hidden). `width` is given where it is not
    hidden: for token numbers and logits. After an exchange for `heads` the width is divided by their number. A gradient
    of keys comes from the tokens `queries`; for keys, these are empty. Scores of a split head belong to some rows of
    its `vocabulary`; the input gradient made from them names no rows (see `vocabulary.py`)."""

    step: int
    batches: tuple[int, ...]
    places: tuple[int, ...]
    in_a_row: bool = False
    width: int | None = None
    heads: int = 1
    queries: tuple[int, ...] | None = None
    vocabulary: tuple[int, ...] | None = None


Content = Rows | Tokens


class OnTier(NamedTuple):
    held: Content
    tier: str


Label = Content | OnTier

Found = tuple[int | None, Content, Array]
"""A result that a rank has declared: the layer of a final weight, ~layer of a final copy, or None for an output; its
content; the tensor."""


def held(label: Label) -> Content:
    """What a tensor on the device holds; refuses a tensor on a tier."""
    if isinstance(label, OnTier):
        raise TraceError(f"a tensor on the {label.tier} is used before it is fetched")
    return label


def content(label: Label) -> Content:
    """What a tensor holds, on the device or on a tier."""
    return label.held if isinstance(label, OnTier) else label


def axis_of(label: Content) -> int:
    """The axis along which a tensor is split: its rows or its tokens."""
    return 0 if isinstance(label, Rows) else 1


def shape_of(label: Content, hidden: int) -> tuple[int, ...]:
    if isinstance(label, Rows):
        return len(label.places), 1 if label.kind == "norm" else hidden
    return 1 if label.in_a_row else len(label.batches), len(label.places), (label.width or hidden) // label.heads


def share(count: int, i: int, n: int) -> range:
    """Positions of part `i` of `n`, out of `count` rows or tokens."""
    if count % n:
        raise TraceError(f"{count} rows or tokens cannot be cut into {n} equal shards; replay a count that divides")
    each = count // n
    return range(i * each, (i + 1) * each)


def cut(label: Content, i: int, n: int) -> Content:
    """Part `i` of `n` of what a tensor holds."""
    return label._replace(places=tuple([label.places[k] for k in share(len(label.places), i, n)]))


def union(labels: Sequence[Content]) -> Content:
    """The rows or tokens of all labels, in order. A row that occurs twice, as in a refused trace, is listed twice."""
    return labels[0]._replace(places=tuple(sorted(place for label in labels for place in label.places)))


def all_batches(labels: Sequence[Label]) -> tuple[int, ...]:
    return tuple(sorted({batch for label in labels for batch in as_tokens(label).batches}))


def as_tokens(label: Label) -> Tokens:
    if isinstance(label, Tokens):
        return label
    raise TraceError("a tensor shaped like a weight has no batches")


def as_rows(label: Label) -> Rows:
    if isinstance(label, Rows):
        return label
    raise TraceError("an activation has no rows of a weight")


def index_of(have: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    """The index of the wanted numbers among those that exist: a slice if they are adjacent."""
    if have == wanted:
        return slice(None)
    place = {number: i for i, number in enumerate(have)}
    try:
        places = [place[number] for number in wanted]
    except KeyError:
        raise TraceError(f"{wanted[0]} to {wanted[-1]} are not all in a tensor with {len(have)}") from None
    return slice(places[0], places[-1] + 1) if places[-1] - places[0] + 1 == len(places) else places


def taken(tensor: Array, label: Content, wanted: tuple[int, ...]) -> Array:
    """The wanted rows or tokens of a tensor, as a view where possible."""
    return tensor[(*[slice(None)] * axis_of(label), index_of(label.places, wanted))]


def joined(tensors: Sequence[Array], labels: Sequence[Content], wanted: Content, result: Array) -> Array:
    """Writes the rows or tokens of all tensors into `result`, which stays zero where no tensor has them, as in a forced
    trace."""
    for tensor, label in zip(tensors, labels):
        result[(*[slice(None)] * axis_of(wanted), index_of(wanted.places, label.places))] = tensor
    return result
