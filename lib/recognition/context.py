"""Names how ranks share the tokens of a sequence: keys go round, or are gathered, or heads are exchanged."""

from collections.abc import Sequence

from lib.rules.collectives import HEADS
from lib.values.base import Batched
from lib.values.kinds import KeyValue

from . import names as known
from .computed import RankWork


def context_parallel(ranks: Sequence[RankWork]) -> str:
    """The name of context parallelism among some ranks."""
    if any(True for work in ranks for _ in work.named(*HEADS)):
        return known.ULYSSES
    brought = {
        op.name
        for work in ranks
        for op in work.named("pass_to", "allgather")
        if any(isinstance(work.state.values[number], KeyValue) for number in op.inputs)
    }
    if "allgather" in brought:
        return known.GATHERED_KEYS
    return known.ZIGZAG if all(map(_is_zigzag, ranks)) else known.RING


def _is_zigzag(work: RankWork) -> bool:
    """True if the tokens of a rank are as far from the start of a sequence as from its end, and in two pieces."""
    made = [work.state.values[op.inputs[0]] for op in work.named("keys")]
    held = {(one.shards, one.total) for one in made if isinstance(one, Batched)}
    return all(2 * sum(shards) == len(shards) * (total - 1) and len(shards) < total for shards, total in held)
