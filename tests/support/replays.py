"""Runs of the extended games that are replayed on tensors, and traces of them that were altered."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from lib import COSTS, Model, Op, Setting, Trace
from lib import pipelines as schedules
from lib.ledger.trace import address
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets, passes
from tests.ledger.test_altered_traces import TAGGED, ring
from tests.pipelines.test_player import FIGURES, KNOWN
from tests.support import finished
from tests.support.schedules import groups, tiers
from tests.support.step_costs import STEP_COSTS


class Game(NamedTuple):
    """A schedule, at a size and in a setting."""

    schedule: Callable[[Model], Any]
    size: tuple[int, int, int]
    setting: Setting

    def trace(self) -> Trace:
        return finished(self.schedule, *self.size, setting=self.setting).trace


OVERLAP = Setting(STEP_COSTS["overlap"])
ISLANDS = Setting(STEP_COSTS["islands"], mesh=(("replica", 2), ("shard", 2)))
LANES = Setting(replace(STEP_COSTS["overlap"], name="lanes", lanes="group"), mesh=(("all", 3),))


async def tangle(model: Model) -> None:
    """Data parallel training of one layer on three ranks, after calls that could not all block where they are made,
    nor where they are awaited."""

    def zero() -> Any:
        return model.fake_grad(0, [])

    if model.rank == 0:
        first, second = model.allreduce(zero(), 0, group=[0, 1]), model.allreduce(zero(), 0, group=[0, 2])
        third = model.allreduce(zero(), 0)
        await model.receive(2)
        for call in (third, second, first):
            await call
    elif model.rank == 1:
        await model.receive(2)  # sent after rank 2 has met rank 0
        await model.allreduce(zero(), 0, group=[0, 1])
        await model.allreduce(zero(), 0)
    else:
        await model.allreduce(zero(), 0, group=[0, 2])
        await model.pass_to(1, zero())
        await model.allreduce(zero(), 0)
        await model.pass_to(0, zero())  # read by rank 0 before it awaits what it meets this rank in
    weight, state = model.load_weights(0)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    model.set_final_weight(0, model.update(0, await model.allreduce(grad, 0), weight, state)[0])


GAMES: dict[str, Game] = {
    **{name: Game(schedule, size, setting) for name, schedule, size, setting, *_ in KNOWN},
    **{
        name: Game(schedules.pipeline(order), (4, 8, 4), Setting(COSTS[costs], steps=steps))
        for name, order, costs, steps, *_ in FIGURES
    },
    "gpipe": Game(schedules.pipeline(schedules.gpipe), (3, 4, 3), Setting(COSTS["stages"], steps=2)),
    "ddp_overlap": Game(buckets(1, 2, 1), (4, 4, 4), OVERLAP),
    "fsdp_prefetch": Game(fsdp_prefetch, (4, 4, 4), OVERLAP),
    "fsdp_prefetch_late": Game(passes(1, prefetch=False), (3, 4, 4), OVERLAP),
    "hybrid_shard": Game(groups.hybrid_shard, (3, 4, 4), ISLANDS),
    "hybrid_shard_kept": Game(groups.hybrid_shard_keeping_the_last, (3, 4, 4), ISLANDS),
    "ring": Game(ring, (3, 2, 2), TAGGED),
    "moved": Game(tiers.moved, (1, 2, 1), Setting(tiers.TWO_TIERS)),
    "tangle": Game(tangle, (1, 3, 3), LANES),
}
"""Every schedule of `tests.support.schedules`, by name."""


# --- Altered traces ------------------------------------------------------------------------------------------

Change = Callable[[int, Op], dict[str, Any]]


@cache
def trace_of(name: str) -> Trace:
    return GAMES[name].trace()


def altered(game: str, name: str, change: Change, nth: int | None = 0, layer: int | None = None) -> Trace:
    """A trace in which the n-th operation of a name (and layer), or each, has other columns, on every rank."""
    trace, ranks = trace_of(game), []
    for rank, ops in enumerate(trace.ranks):
        places = [i for i, op in enumerate(ops) if op.name == name and layer in (None, op.layer)]
        chosen = places if nth is None else places[nth : nth + 1]
        ranks.append(tuple(op._replace(**change(rank, op)) if i in chosen else op for i, op in enumerate(ops)))
    return replace(trace, ranks=tuple(ranks))


def without_await(game: str, rank: int, nth: int) -> Trace:
    """A trace in which a rank does not await one of its calls."""
    trace = trace_of(game)
    ops = list(trace.ranks[rank])
    gone = [i for i, op in enumerate(ops) if op.name == "await"][nth]
    del ops[gone]
    moved = [op._replace(args=(op.args[0] - (op.args[0] > gone),)) if op.name == "await" else op for op in ops]
    return replace(trace, ranks=tuple(tuple(moved) if r == rank else own for r, own in enumerate(trace.ranks)))


def used_by(game: str, name: str, nth: int) -> list[tuple[int, ...]]:
    """What the n-th operation of a name uses, by rank."""
    return [[op.inputs for op in ops if op.name == name][nth] for ops in trace_of(game).ranks]


def brought_to(game: str, name: str, nth: int) -> Change:
    """Uses what an operation was brought in place of what it made."""
    ops = [[op for op in ops if op.name == name][nth] for ops in trace_of(game).ranks]

    def change(rank: int, op: Op) -> dict[str, Any]:
        (made,), (brought,) = ops[rank].outputs, ops[rank].inputs
        assert made in op.inputs
        return {"inputs": tuple(brought if number == made else number for number in op.inputs)}

    return change


def swapped(rank: int, op: Op) -> dict[str, Any]:
    """Ranks 0 and 1 change places."""
    shard, *rest = op.args
    return {"args": ({0: 1, 1: 0}.get(rank, shard), *rest)}


def exchanged_tags(rank: int, op: Op) -> dict[str, Any]:
    """Rank 1 reads what was sent with tag 2 for tag 0, and the other way round."""
    source, *tag = op.args
    return {"args": (op.args, address(source, 2 - (tag or [0])[0]))[rank]}


ALTERED: dict[str, Callable[[], Trace]] = {
    "a sum in the wrong group": lambda: altered(
        "hybrid_shard", "allreduce", lambda rank, op: {"args": ((0, 1) if rank < 2 else (2, 3),)}
    ),
    "a gather in the wrong group": lambda: altered(
        "hybrid_shard", "allgather", lambda rank, op: {"args": ((rank % 2, rank % 2 + 2),)}
    ),
    "a weight that was not awaited": lambda: without_await("fsdp_prefetch", 0, 1),
    "a gradient that was not awaited": lambda: without_await("ddp_overlap", 0, 0),
    "a bucket in another order on one rank": lambda: altered(
        "ddp_overlap", "allreduce", lambda rank, op: {"inputs": op.inputs[:: -1 if rank == 1 else 1]}, nth=1
    ),
    "the same part twice": lambda: altered("tensor_parallel", "load_weights", lambda r, op: {"args": (r // 2, 4)}),
    "a part in place of the sum": lambda: altered(
        "tensor_parallel", "forward", brought_to("tensor_parallel", "allreduce", 0), 1
    ),
    "a gradient's part in place of the sum": lambda: altered(
        "tensor_parallel", "backward", brought_to("tensor_parallel", "allreduce", 4), 1
    ),
    "another expert's weight": lambda: altered("experts_in_turn", "load_weights", swapped),
    "data of another step": lambda: altered("ddp_four_steps", "get_activation", lambda rank, op: {"args": (0,)}, 2),
    "a gradient of another microbatch": lambda: altered(
        "zb_h1",
        "backward_weight",
        lambda rank, op: {"inputs": (op.inputs[0], used_by("zb_h1", "backward_weight", 0)[rank][1])},
        nth=1,
    ),
    "an average of some replicas": lambda: altered(
        "local_sgd", "allreduce", lambda rank, op: {"args": ((0, 1) if rank < 2 else (2, 3),)}
    ),
    "a replica's weight as the result": lambda: altered(
        "local_sgd", "set_final_weight", brought_to("local_sgd", "allreduce", 0)
    ),
    "another layer's weight from the host": lambda: altered(
        "stream_inference", "fetch", lambda rank, op: {"inputs": used_by("stream_inference", "fetch", 2)[rank]}, 1
    ),
    "another layer's activation from the host": lambda: altered(
        "offload", "fetch", lambda rank, op: {"inputs": used_by("offload", "fetch", 2)[rank]}, 1
    ),
    "messages of two tags exchanged": lambda: altered("ring", "receive", exchanged_tags, nth=None),
}
"""By name of the mistake."""
