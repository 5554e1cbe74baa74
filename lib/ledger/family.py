"""Determines the family of a schedule from its trace: what each rank computes, and which values travel between ranks.

Data parallelism (each batch stays on one rank), sharded (ZeRO, Rajbhandari et al. 2020) or not, or with averaged
weights (local SGD, Stich 2019); tensor parallelism (ranks compute parts of one layer; Megatron-LM, Shoeybi et al.
2019); expert parallelism (tokens go to experts; GShard, Lepikhin et al. 2020); context parallelism (ranks share the
tokens of a sequence, and keys travel; Liu et al. 2023); pipelines (each layer stays on its ranks and activations
travel; GPipe, Huang et al. 2019).
"""

from collections.abc import Sequence, Set

from lib.ledger.collectives import ALL_TO_ALL, COLLECTIVES, HEADS, SUMMING
from lib.ledger.costs import COMPUTING
from lib.ledger.trace import UPDATES, Op
from lib.ledger.values import Batched, Delta, KeyValue, Value, Weight

from .recomputation import RankState

ONE_RANK = "training on one rank"
DATA_PARALLEL = "data parallelism"
SHARDED = "sharded data parallelism"
OWNERS_SEND = "data parallelism with weights sent by their owners"
LOCAL_SGD = "local SGD"
TENSOR_PARALLEL = "tensor parallelism"
EXPERT_PARALLEL = "expert parallelism"
CONTEXT_PARALLEL = "context parallelism"
PIPELINE = "a pipeline"
SHARDED_PIPELINE = "a pipeline with sharded weights"
TENSOR_PIPELINE = "a pipeline of tensor-parallel stages"
VOCABULARY_PIPELINE = "a pipeline with a head cut by vocabulary"
REPEATED = "a pipeline whose stages repeat the forward of others"
MIXED = "a mixture"

PIPELINES = (PIPELINE, SHARDED_PIPELINE, TENSOR_PIPELINE, VOCABULARY_PIPELINE, REPEATED)

FAMILIES = (ONE_RANK, DATA_PARALLEL, SHARDED, OWNERS_SEND, LOCAL_SGD, TENSOR_PARALLEL, EXPERT_PARALLEL) + (
    (CONTEXT_PARALLEL, *PIPELINES, MIXED)
)
"""The families of schedules, worded to complete a sentence: 'this is a pipeline'."""

BACKWARD = COMPUTING - {"forward", "keys", "attend"}


MESSAGES = {"pass_to", "broadcast"}
"""What takes a value from one rank to others as it is."""


def family_of(ranks: Sequence[RankState]) -> str:
    """The family of a legal run: one of FAMILIES.

    A pipeline: activations travel in messages, and any two ranks compute either the same layers or different ones, but
    none computes all of them, except for a shared head. If this holds only for backward, its stages repeat the forward
    of others. Context parallelism: keys or heads travel. Tensor and expert parallelism: activations meet in
    collectives. Data parallelism: no activation travels, and in every step a batch is computed on one rank. Weights
    distinguish its kinds: averaged, gathered or updated in shards, sent in messages, or none of these.
    """
    if sum(not COMPUTING.isdisjoint(rank.named) for rank in ranks) < 2:
        return ONE_RANK
    if _bring(ranks, {"pass_to", *COLLECTIVES}, KeyValue) or _bring(ranks, HEADS, Batched):
        return CONTEXT_PARALLEL
    tensor_parallel = _bring(ranks, COLLECTIVES - ALL_TO_ALL - MESSAGES, Batched)
    sends_weights = _bring(ranks, MESSAGES, Weight)
    if any(_receives_activations(rank, tensor_parallel) for rank in ranks):
        if not _has_stages(ranks, COMPUTING):
            return REPEATED if _has_stages(ranks, BACKWARD) else MIXED
        if any(_shares_head(rank, op) for rank in ranks for op in rank.all({"loss"})):
            return VOCABULARY_PIPELINE
        if tensor_parallel:
            return TENSOR_PIPELINE
        return SHARDED_PIPELINE if _shards(ranks) or sends_weights else PIPELINE
    if _bring(ranks, ALL_TO_ALL, Batched):
        return EXPERT_PARALLEL
    if tensor_parallel:
        return TENSOR_PARALLEL
    computed = [_batches(rank) for rank in ranks]
    if sum(map(len, computed)) > len(frozenset[tuple[int, int]]().union(*computed)):  # a batch is on two ranks
        return MIXED
    if _bring(ranks, SUMMING, Weight) or _bring(ranks, SUMMING, Delta):
        return LOCAL_SGD
    if sends_weights:
        return OWNERS_SEND
    return SHARDED if _shards(ranks) else DATA_PARALLEL


def _has_stages(ranks: Sequence[RankState], names: Set[str]) -> bool:
    """True if ranks compute several sets of layers, any two of them equal or disjoint."""
    per_rank = [frozenset(op.layer for op in rank.all(names) if not _shares_head(rank, op)) for rank in ranks]
    layers = {*per_rank} - {frozenset()}
    return len(layers) > 1 and sum(map(len, layers)) == len(frozenset().union(*layers))


def _shares_head(rank: RankState, op: Op) -> bool:
    values = (rank.values[number] for number in (*op.inputs, *op.outputs))
    return any(isinstance(value, Batched) and value.vocabulary and value.total > 1 for value in values)


def _bring(ranks: Sequence[RankState], names: Set[str], kind: type[Value]) -> bool:
    """True if an operation with one of the names uses a value of a kind."""
    return any(issubclass(used, kind) for rank in ranks for used in _kinds(rank, names))


def _kinds(rank: RankState, names: Set[str]) -> set[type[Value]]:
    ops, values, named = rank.ops, rank.values, rank.named
    return {type(values[number]) for name in names & named.keys() for i in named[name] for number in ops[i].inputs}


def _receives_activations(rank: RankState, in_messages: bool) -> bool:
    """True if the rank computes with an activation, or its gradient, that it received in a message, or also in a
    broadcast."""
    values = rank.values
    names = {"receive"} if in_messages else {"receive", "broadcast"}
    came = {n for op in rank.all(names) if not op.inputs for n in op.outputs}
    came = {n for n in came if isinstance(values[n], Batched)}
    return bool(came) and any(not came.isdisjoint(op.inputs) for op in rank.all(COMPUTING | {"loss"}))


def _shards(ranks: Sequence[RankState]) -> bool:
    """True if a rank gathers weights, or updates a part of one."""
    return _bring(ranks, {"allgather"}, Weight) or not all(
        weight.is_complete() for rank in ranks for op in rank.all(UPDATES) for weight in rank.used(op)[1:2]
    )


def _batches(rank: RankState) -> frozenset[tuple[int, int]]:
    """The (step, batch) pairs that a rank computes."""
    values, ops = rank.values, [rank.ops[i] for name in COMPUTING | {"loss"} for i in rank.named.get(name, ())]
    computed = {(values[op.inputs[0]].step, op.batches) for op in ops}  # type: ignore[attr-defined]  # an activation first
    return frozenset((step, batch) for step, batches in computed for batch in batches)
