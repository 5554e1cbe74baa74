"""Names what a tensor of a replay holds: rows of a weight, or tokens of some microbatches, here or on a memory tier."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lib.engine.collectives import Array
from lib.errors import TraceError


class Rows(NamedTuple):
    """Rows of a "weight", an optimizer "state" or a weight's "grad", of so many (`of`): a tensor of (rows, hidden). The
    "norm" of gradients is one number."""

    kind: str
    places: tuple[int, ...]
    of: int
    copies: int = 1
    """The copies whose changes an outer gradient adds up."""


class Tokens(NamedTuple):
    """Tokens of a step's microbatches, of an activation or its gradient: a tensor of (batches, tokens, hidden). Where
    microbatches have lengths, the tokens of all follow each other: (1, tokens, hidden). A `width` is not hidden, but
    the width of token numbers or logits; after an exchange for heads it is so many times smaller. A gradient of keys
    is from the tokens `queries`; keys are from none. Scores of a cut head are of some rows of its `vocabulary`; the
    input gradient that it makes of them names none (see `vocabulary.py`)."""

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
    """A tensor on a memory tier."""

    held: Content
    tier: str


Label = Content | OnTier


def held(label: Label) -> Content:
    """What a tensor on the device holds."""
    if isinstance(label, OnTier):
        raise TraceError(f"a tensor on the {label.tier} is used before it is fetched")
    return label


def content(label: Label) -> Content:
    """What a tensor holds, wherever it is."""
    return label.held if isinstance(label, OnTier) else label


def axis_of(label: Content) -> int:
    """The axis along which a tensor is cut: its rows, or its tokens."""
    return 0 if isinstance(label, Rows) else 1


def shape_of(label: Content, hidden: int) -> tuple[int, ...]:
    if isinstance(label, Rows):
        return len(label.places), 1 if label.kind == "norm" else hidden
    return 1 if label.in_a_row else len(label.batches), len(label.places), (label.width or hidden) // label.heads


def share(count: int, i: int, n: int) -> range:
    """Places of part `i` of `n` of so many rows or tokens."""
    if count % n:
        raise TraceError(f"{count} rows or tokens cannot be cut into {n} equal shards; replay a count that divides")
    each = count // n
    return range(i * each, (i + 1) * each)


def cut(label: Content, i: int, n: int) -> Content:
    """Part `i` of `n` of what a tensor holds."""
    return label._replace(places=tuple([label.places[k] for k in share(len(label.places), i, n)]))


def union(labels: Sequence[Content]) -> Content:
    """The rows or tokens of all, in order; one that comes twice, as in a refused trace, is there twice."""
    return labels[0]._replace(places=tuple(sorted(place for label in labels for place in label.places)))


def all_batches(labels: Sequence[Label]) -> tuple[int, ...]:
    return tuple(sorted({batch for label in labels for batch in as_tokens(label).batches}))


def as_tokens(label: Label) -> Tokens:
    """The label of an activation or its gradient."""
    if isinstance(label, Tokens):
        return label
    raise TraceError("a tensor shaped like a weight has no batches")


def as_rows(label: Label) -> Rows:
    """The label of a tensor shaped like a weight."""
    if isinstance(label, Rows):
        return label
    raise TraceError("an activation has no rows of a weight")


def index_of(have: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    """The index of the wanted numbers among those that there are: a slice if they are next to each other."""
    if have == wanted:
        return slice(None)
    place = {number: i for i, number in enumerate(have)}
    try:
        places = [place[number] for number in wanted]
    except KeyError:
        raise TraceError(f"{wanted[0]} to {wanted[-1]} are not all in a tensor with {len(have)}") from None
    return slice(places[0], places[-1] + 1) if places[-1] - places[0] + 1 == len(places) else places


def taken(tensor: Array, label: Content, wanted: tuple[int, ...]) -> Array:
    """The wanted rows or tokens of a tensor: perhaps a view of it."""
    return tensor[(*[slice(None)] * axis_of(label), index_of(label.places, wanted))]


def joined(tensors: Sequence[Array], labels: Sequence[Content], wanted: Content, result: Array) -> Array:
    """The wanted rows or tokens of all tensors, in `result`, which is zero where none has them: in a forced trace."""
    for tensor, label in zip(tensors, labels):
        result[(*[slice(None)] * axis_of(wanted), index_of(wanted.places, label.places))] = tensor
    return result
