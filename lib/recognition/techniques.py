"""What a schedule does besides its order: recomputation, prefetch, overlap, offload, buckets, how often it gathers."""

from collections.abc import Iterator, Sequence

from lib.game.costs import COMPUTING
from lib.rules.collectives import COLLECTIVES, REDUCING
from lib.trace.ops import Op
from lib.values.kinds import OptState, Parked, Weight, WeightGrad

from .computed import RankWork
from .sharding import gathers

OFTEN = {1: "once", 2: "twice"}


def extras_of(ranks: Sequence[RankWork], gathers_in_steps: bool) -> Iterator[str]:
    """What a schedule has besides its order, in words: 'activations recomputed'."""
    if any(work.again for work in ranks):
        yield "activations recomputed"
    if gathers_in_steps and (often := {times for work in ranks for times in gathers(work)}) and len(often) == 1:
        (times,) = often
        yield f"every weight gathered {OFTEN.get(times, f'{times} times')}"
    if any(_beside(work, "allgather", "fetch") for work in ranks):
        yield "prefetch"
    if any(_beside(work, *REDUCING, kind=WeightGrad) for work in ranks):
        yield "gradients summed during backward"
    if parked := {_parked(work, op) for work in ranks for op in work.named("offload", "fetch")}:
        yield from sorted(parked)
    if any(len(op.inputs) > 1 for work in ranks for op in work.named(*COLLECTIVES)):
        yield "buckets"


def _beside(work: RankWork, *names: str, kind: type = object) -> bool:
    """True if a call of some name has computation between it and its await."""
    awaited = {op.args[0]: i for i, op in enumerate(work.ops) if op.name == "await"}
    for at, until in awaited.items():
        call = work.ops[at]
        is_meant = call.name in names and isinstance(work.state.values[call.inputs[0]], kind)
        if is_meant and any(op.name in COMPUTING for op in work.ops[at:until]):
            return True
    return False


def _parked(work: RankWork, op: Op) -> str:
    """What is moved to or from a tier: 'activations offloaded to the host', 'weights fetched from the host'."""
    value = work.state.values[op.inputs[0] if op.name == "fetch" else op.outputs[0]]
    assert isinstance(value, Parked)
    loaded = any(value.tier in made.args for made in work.named("load_weights"))
    is_there = loaded and op.name == "fetch" and isinstance(value.value, Weight | OptState)
    how = "fetched from" if is_there else "offloaded to"
    return f"{value.value.kind.split(' ', 1)[1]}s {how} the {value.tier}"
