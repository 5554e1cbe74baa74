"""States what collectives do with activations: parts of a sum, shares of the tokens, tokens on the way to experts.

A block that is cut by shards makes parts of a sum (Shoeybi et al. 2019, section 3). Adding them and keeping a share of
the tokens is half of an all-reduce (Korthikanti et al. 2022, section 4.2.2). Both hold for activations and for their
gradients.
"""

from collections.abc import Sequence

from lib.errors import RuleError
from lib.values import algebra
from lib.values.algebra import Who, named
from lib.values.base import Batched, Value, require_alike, require_kind, with_fields
from lib.values.kinds import KeyValue, KeyValueGrad
from lib.values.label_text import batches_text, parts_text, tokens_text
from lib.values.sums import ALIKE_PARTS, ONE_LABEL

from .words import SAYS


def sum_parts(values: Sequence[Value], who: Who) -> Batched:
    """The sum of all parts, each of which is contributed once."""
    first, of = _alike(values, ALIKE_PARTS, who, "sum")
    if first.of == 1:
        raise RuleError(SAYS("complete sum", first=first))
    union = algebra.disjoint_union([v.parts for v in of], "part", who, "sum each part once")
    if len(union) < first.of:
        missing = algebra.missing_text("part", union, first.of)
        raise RuleError(SAYS("missing parts", missing=missing, of=first.of))
    return with_fields(first, parts=algebra.WHOLE, of=1)


def scatter_sum(values: Sequence[Value], who: Who) -> list[Value]:
    """The sum of all parts, of which the i-th of n members keeps share i of n of the tokens."""
    total, n = sum_parts(values, who), len(values)
    shares, count = algebra.coarsest(total.shards, total.total)
    if len(shares) > 1:
        raise RuleError(SAYS("scatter of several shares", tokens=tokens_text(total)))
    (share,) = shares
    return [with_fields(total, shards=frozenset((share * n + i,)), total=count * n) for i in range(n)]


def gather_tokens(values: Sequence[Value], who: Who) -> Batched:
    """The tokens of all members, joined."""
    first, of = _alike(values, (*ONE_LABEL, "batches", "parts", "of", "total"), who, "gather")
    union = algebra.disjoint_union([v.shards for v in of], "share", who, "gather each share of the tokens once")
    if isinstance(first, KeyValue | KeyValueGrad):
        return with_fields(first, shards=union)
    shards, total = algebra.coarsest(union, first.total)
    return with_fields(first, shards=shards, total=total)


def dispatch(values: Sequence[Value], who: Who) -> list[Value]:
    """The tokens of each member's batches go to their experts: the e-th of n members gets share e of n of all."""
    first, of = _alike(values, ONE_LABEL, who, "dispatch")
    for i, value in enumerate(of):
        _require_whole(value, who(i), "dispatch")
    batches = algebra.disjoint_union([v.batches for v in of], "batch", who, "dispatch each batch once")
    n = len(of)
    if n == 1:
        return [first]
    return [with_fields(first, batches=batches, shards=frozenset((e,)), total=n) for e in range(n)]


def collect(values: Sequence[Value], wanted: Sequence[frozenset[int]], who: Who) -> list[Value]:
    """The experts' tokens go back: every member gets the batches that it wants, with all of their tokens."""
    whole = gather_tokens(values, who)
    _require_whole(whole, "everybody together", "collect")
    back = algebra.disjoint_union(wanted, "batch", who, "collect each batch on one rank")
    if back != whole.batches:
        asked = named("batch", sorted(back)) if back else "none"
        raise RuleError(SAYS("other batches asked back", batches=batches_text(whole), asked=asked))
    return [with_fields(whole, batches=batches) for batches in wanted]


def _alike(values: Sequence[Value], names: Sequence[str], who: Who, verb: str) -> tuple[Batched, list[Batched]]:
    first = values[0]
    assert isinstance(first, Batched)  # what `require_contribution` lets through
    for i, value in enumerate(values):
        require_kind(value, type(first), f"what all ranks {verb}")
        require_alike(first, value, names, who, i, verb)
    return first, values  # type: ignore[return-value]  # all are of one kind by now


def _require_whole(value: Batched, owner: str, verb: str) -> None:
    if len(value.parts) < value.of:
        raise RuleError(SAYS("part of a sum", owner=owner, parts=parts_text(value), verb=verb))
    if len(value.shards) < value.total:
        raise RuleError(SAYS("not all tokens", owner=owner, tokens=tokens_text(value), verb=verb))
