"""Says what family a schedule is of, from its trace: what each rank computes, and which values travel between ranks.

Data parallelism (each batch stays on one rank), sharded (ZeRO, Rajbhandari et al. 2020) or not; pipelines (each layer
stays on its ranks and activations travel; GPipe, Huang et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lib.trace import Op
from lib.values.base import Value
from lib.values.kinds import Activation, ActivationGrad, Weight

from .rank_state import RankState

ONE_RANK = "training on one rank"
DATA_PARALLEL = "data parallelism"
SHARDED = "sharded data parallelism"
OWNERS_SEND = "data parallelism with weights sent by their owners"
PIPELINE = "a pipeline"
SHARDED_PIPELINE = "a pipeline with sharded weights"
REPEATED = "a pipeline whose stages repeat the forward of others"
MIXED = "a mixture"

FAMILIES = (ONE_RANK, DATA_PARALLEL, SHARDED, OWNERS_SEND, PIPELINE, SHARDED_PIPELINE, REPEATED, MIXED)
"""What a schedule can be, as a sentence names it: 'this is a pipeline'."""

FORWARD_OR_BACKWARD = ("forward", "backward")
"""What the names of operations that compute with a layer begin with."""


def family_of(ranks: Sequence[RankState]) -> str:
    """The family of a run that is legal: one of FAMILIES.

    A pipeline: activations travel, and any two ranks compute either the same layers or different ones, but none all
    of them; if that holds for backward alone, its stages repeat the forward of others. Data parallelism: no activation
    travels, and every batch is computed on one rank. Each by the weights: gathered or updated in shards, sent in
    messages, or neither.
    """
    if sum(any(map(_computes, state.done)) for state in ranks) < 2:
        return ONE_RANK
    if any(map(_receives_activations, ranks)):
        if not _has_stages(ranks, ("backward",)):
            return MIXED
        if not _has_stages(ranks, FORWARD_OR_BACKWARD):
            return REPEATED
        return SHARDED_PIPELINE if any(map(_shards, ranks)) or any(map(_sends_weights, ranks)) else PIPELINE
    if not _each_batch_on_one_rank(ranks):
        return MIXED
    if any(map(_sends_weights, ranks)):
        return OWNERS_SEND
    return SHARDED if any(map(_shards, ranks)) else DATA_PARALLEL


def _computes(op: Op) -> bool:
    return op.name.startswith(FORWARD_OR_BACKWARD)


def _has_stages(ranks: Sequence[RankState], names: tuple[str, ...]) -> bool:
    """True if the layers that ranks compute are several sets, any two of them equal or without a common layer."""
    layers = {frozenset(op.layer for op in state.done if op.name.startswith(names)) for state in ranks} - {frozenset()}
    return len(layers) > 1 and sum(map(len, layers)) == len(frozenset().union(*layers))


def _values(state: RankState, name: str) -> Iterator[tuple[Op, Value]]:
    """The values that one rank's operations of a name used or made."""
    for op in state.done:
        if op.name == name:
            for number in (*op.used, *op.made):
                yield op, state.values[number]


def _receives_activations(state: RankState) -> bool:
    """True if the rank computes with an activation, or the gradient of one, that came in a message."""
    came = {number for op in state.done if op.name == "receive" for number in op.made}
    return any(
        number in came and isinstance(state.values[number], Activation | ActivationGrad)
        for op in state.done
        if _computes(op) or op.name == "loss"
        for number in op.used
    )


def _sends_weights(state: RankState) -> bool:
    return any(isinstance(value, Weight) for _, value in _values(state, "pass_to"))


def _shards(state: RankState) -> bool:
    """True if the rank gathers weights, or updates a part of one."""
    gathers = any(isinstance(value, Weight) for _, value in _values(state, "allgather"))
    parts = (value for _, value in _values(state, "update") if isinstance(value, Weight))
    return gathers or any(not value.is_complete() for value in parts)


def _each_batch_on_one_rank(ranks: Sequence[RankState]) -> bool:
    batches = [
        frozenset[int]().union(*(op.batches for op in state.done if _computes(op) or op.name == "loss"))
        for state in ranks
    ]
    return sum(map(len, batches)) == len(frozenset[int]().union(*batches))
