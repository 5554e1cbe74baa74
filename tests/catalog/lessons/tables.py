"""Solutions that skip a puzzle's lesson, by chapter, and the targets that each misses."""

from collections.abc import Callable, Mapping
from typing import Any

from lib import Goal, Model, Report, referee, run
from lib.pipelines import pipeline
from lib.pipelines.orders import (
    dualpipev,
    gpipe,
    interleaved,
    interleaved_zb,
    one_f_one_b,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zb_v,
)
from puzzles.catalog.schedule import CLASSICS as EIGHT
from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.grid import Order, grid, in_halves, in_pairs, long_warm_up, one_by_one
from tests.catalog.lessons.families.one_rank import host_plan, host_updates, infer, inputs
from tests.catalog.lessons.families.replicas import (
    all_together,
    alone,
    buckets,
    experts,
    local,
    outer_steps,
    passes,
    replicas,
    ring,
    two_together,
)
from tests.catalog.lessons.families.replicas import one_by_one as one_after_another
from tests.support.mistakes import altered
from tests.support.schedules.splits import uneven
from tests.support.variants import module_of

# --- What the tables share: their type, and data parallelism by messages ---


Skip = tuple[Callable[[Model], Any], set[str]]
"""A schedule, and the targets that it misses: "time", "memory", "traffic", "drift", "host" or "steady" (the peak in
steady state, or a step that cannot be repeated). "record": it meets all, but does not get three stars."""

Skips = Mapping[str, Mapping[str, Skip]]
"""By puzzle, by name."""

CUT = "all-reduce and cut"

SEND, SEND_AT_ONCE = replicas("s"), replicas("s", at_once=True)
HOLD, HOLD_AT_ONCE = replicas("h"), replicas("h", at_once=True)
AGAIN, AGAIN_AT_ONCE = replicas("a"), replicas("a", at_once=True)

MESSAGES = {
    "owners send, all microbatches together": SEND_AT_ONCE,
    "owners send": SEND,
    "whole weights stay, all microbatches together": HOLD_AT_ONCE,
    "whole weights stay, owners send new ones": HOLD,
    "load again, all microbatches together": AGAIN_AT_ONCE,
    "load again": AGAIN,
}


def all_messages(*missed: str) -> dict[str, Skip]:
    """Data parallelism by messages in its six forms, with the targets that each misses, as in "time traffic"."""
    assert len(missed) == len(MESSAGES)
    return {name: (schedule, set(each.split())) for (name, schedule), each in zip(MESSAGES.items(), missed)}


def two_by_two(order: Order = one_f_one_b) -> Callable[[Model], Any]:
    """Two pipelines of two stages, with full weights on both."""
    return grid(2, 1, 2, order, in_messages=True)


# --- What a schedule's report says about the targets of its puzzle ---


MODERN = [slug for slug in PUZZLES if slug not in EIGHT.slugs]
"""Puzzles of which every target decides the pass."""


def judged(schedule: Callable[[Model], Any], goal: Goal) -> Report:
    """The report on a schedule that is correct."""
    outcome = run(schedule, *goal.size, setting=goal.setting)
    assert outcome.error is None
    report = referee(outcome.trace, goal)
    assert report.error is None
    return report


def missed(report: Report) -> set[str]:
    """The targets that a report misses, as the tables of skips name them; empty with three stars.

    A peak that is over the target anyway is "memory", and in steady state only if the step cannot be repeated, too.
    """
    goal = report.goal
    assert goal is not None
    met = {
        "time": report.meets_time,
        "memory": report.meets_memory,
        "traffic": report.meets_traffic,
        "drift": report.meets_drift,
        "host": report.meets_host,
        "steady": report.is_steady or not (report.unrepeatable or report.meets_memory),
    }
    over = {name for name, is_met in met.items() if not is_met}
    return over or ({"record"} if report.stars < 3 else set())


# --- Solutions that skip the lessons of the classics; those that meet the original's targets keep two stars ---


SUM = "await model.scatterreduce(grad_weights[layer], layer)"
CUT_SUM = "(await model.allreduce(grad_weights[layer], layer)).shard(model.rank, model.RANKS)"
ALL_REDUCED = altered("pipeline_fsdp", ((SUM, CUT_SUM),))


CLASSICS: Skips = {
    "basic": {
        "every input again": (inputs("nn"), {"time"}),
    },
    "grad_accum": {
        "all batches at once": (inputs("ak"), {"record"}),
        "all batches at once, inputs stay": (inputs("kk"), {"memory"}),
        "every input again": (inputs("nn"), {"time"}),
    },
    "ddp": {
        "one rank": (alone, {"time"}),
        "owners send": (SEND, {"time", "traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"time", "traffic"}),
        "fsdp": (replicas("3"), {"time", "traffic"}),
        "pipeline": (grid(2, 1, 2, in_messages=True), {"time"}),
    },
    "wsdp": {
        "zero1": (replicas("1"), {"record"}),
        "ddp": (replicas("d"), {"memory"}),
        "owners send": (SEND, {"time"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory"}),
        "load again": (AGAIN, {"steady"}),
    },
    "fsdp": {
        "ddp": (replicas("d"), {"memory"}),
        "zero1": (replicas("1"), {"memory"}),
        "all-reduce and keep a shard": (replicas("3", reduce=CUT), {"traffic"}),
        "owners send": (SEND, {"time", "traffic"}),
        "load again": (AGAIN, {"steady"}),
    },
    "pipeline": {
        "fsdp": (replicas("3"), {"traffic"}),
        "zero1": (replicas("1"), {"memory", "traffic"}),
        "owners send": (SEND, {"traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory", "traffic"}),
        "one batch at a time": (grid(4, order=one_by_one), {"time"}),
    },
    "gpipe": {
        "fsdp": (replicas("3"), {"traffic"}),
        "zero1": (replicas("1"), {"traffic"}),
        "owners send": (SEND, {"traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"traffic"}),
        "pipeline without microbatches": (grid(4, together=4), {"time"}),
    },
    "pipeline_fsdp": {
        "all-reduce and keep a shard": (ALL_REDUCED, {"traffic"}),
        "zero1": (replicas("1"), {"memory"}),
        "owners send": (SEND, {"memory"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory"}),
        "load again": (AGAIN, {"steady"}),
        "full weights of a stage on four replicas": (grid(4, 1, 4, in_messages=True), {"record"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter Memory ---


GATHER_ALL = "        weights[layer] = await model.allgather(weights[layer], layer)\n"

MEMORY: Skips = {
    "zero1": {
        "ddp": (replicas("d"), {"memory"}),
        "all-reduce and keep a shard": (replicas("1", reduce=CUT), {"time", "traffic"}),
        "all-reduce, owners send new weights": (replicas("o"), {"time", "traffic"}),
        "fsdp": (replicas("3"), {"traffic"}),
        "fsdp that gathers every weight twice": (grid(replicas=4, zero=3), {"time", "traffic"}),
        "no gather at the end": (altered("zero1", ((GATHER_ALL, ""),)), {"steady"}),
        "owners send": (SEND, {"time", "traffic"}),
        "load again": (AGAIN, {"steady"}),
        "owners have the states of full layers, and send new weights": (replicas("h", lazy=True), {"time"}),
        "pipeline": (grid(4), {"time"}),
        "one rank": (alone, {"time", "memory"}),
    },
    "zero2": {
        "ddp": (replicas("d"), {"memory"}),
        "sum first": (replicas("1"), {"memory"}),
        "all-reduce and keep a shard": (replicas("2", reduce=CUT), {"time", "traffic"}),
        "all microbatches together": (replicas("2", at_once=True), {"memory"}),
        "fsdp": (replicas("3"), {"time", "traffic"}),
        "fsdp, all microbatches together": (replicas("3", at_once=True), {"memory"}),
        "owners have the states of full layers, and send new weights": (replicas("h", lazy=True), {"time"}),
        "two pipelines of two stages": (two_by_two(), {"time"}),
        "pipeline": (grid(4), {"time", "traffic"}),
        "owners send": (SEND, {"time", "traffic"}),
        "owners send, all microbatches together": (SEND_AT_ONCE, {"time", "memory"}),
        "whole weights stay, owners send new ones": (HOLD, {"time"}),
        "whole weights stay, all microbatches together": (HOLD_AT_ONCE, {"memory"}),
        "load again": (AGAIN, {"time", "steady"}),
        "load again, all microbatches together": (AGAIN_AT_ONCE, {"steady"}),
    },
    "checkpoint": {
        "inputs stay": (inputs("akkkkkkkk"), {"memory"}),
        "no input stays": (inputs("nnnnnnnnn"), {"time"}),
        "every second input again": (inputs("akakakaka"), {"memory"}),
        "all from one checkpoint": (inputs("aaaaaaaaa"), {"time", "memory"}),
    },
    "offload": {
        "inputs stay": (inputs("akkkkkkk"), {"memory"}),
        "one copy fewer": (inputs("appppkkk"), {"memory"}),
        "one copy more": (inputs("appppppk"), {"host"}),
        "one input again": (inputs("appppakk"), {"time"}),
        "inputs again": (inputs("aakakakk"), {"time", "memory"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter Pipelines ---


PIPELINES: Skips = {
    "one_f_one_b": {
        "gpipe": (grid(4, order=gpipe), {"memory"}),
        "twice the warm-up": (grid(4, order=long_warm_up), {"memory"}),
        "one batch at a time": (grid(4, order=one_by_one), {"time"}),
        "two pipelines of two stages": (two_by_two(), {"memory"}),
        **all_messages("memory traffic", "traffic", "memory traffic", "memory traffic", "steady", "steady traffic"),
    },
    "interleaved": {
        "1f1b of two layers a rank": (grid(4), {"time"}),
        "gpipe": (grid(4, order=gpipe), {"time", "memory"}),
        "two pipelines of two stages": (two_by_two(), {"time", "memory"}),
        **all_messages("traffic", "traffic", "memory traffic", "memory traffic", "steady", "steady traffic"),
    },
    "breadth_first": {
        "two pipelines of two stages": (two_by_two(), {"memory"}),
        "depth first": (pipeline(interleaved, v=2, sharded=True), {"time", "memory", "traffic"}),
        "four stages": (grid(4), {"time"}),
        "gpipe": (grid(4, order=gpipe), {"time"}),
        "fsdp": (replicas("3", at_once=True), {"time", "traffic"}),
        **all_messages("traffic", "traffic", "memory traffic", "memory traffic", "steady", "steady traffic"),
    },
    "zb_h1": {
        "1f1b": (grid(4), {"time"}),
        "1f1b, in halves": (grid(4, order=in_halves(one_f_one_b)), {"time"}),
        "gpipe": (grid(4, order=gpipe), {"time", "memory"}),
        "gpipe, in halves": (grid(4, order=in_halves(gpipe)), {"time", "memory"}),
        "zb-h2": (grid(4, order=zb_h2), {"memory"}),
        "two pipelines of two stages": (two_by_two(zb_h1), {"memory"}),
        **all_messages("memory traffic", "traffic", "memory traffic", "memory traffic", "steady", "steady traffic"),
    },
    "zb_v": {
        "1f1b of two layers a rank": (grid(4), {"time"}),
        "gpipe": (grid(4, order=gpipe), {"time", "memory"}),
        "zb-h1 of two layers a rank": (grid(4, order=zb_h1), {"time", "memory"}),
        "v-half": (grid(4, order=v_half), {"time"}),
        "v-min": (grid(4, order=v_min), {"time"}),
        "interleaved, in halves": (grid(4, order=interleaved_zb, chunks=2), {"steady"}),
        "two pipelines of two stages": (two_by_two(zb_h1), {"time", "memory"}),
        **all_messages("memory traffic", "traffic", "memory traffic", "memory traffic", "steady", "steady traffic"),
    },
    "zb_h2": {
        "1f1b": (grid(4), {"time"}),
        "1f1b, in halves": (grid(4, order=in_halves(one_f_one_b)), {"time"}),
        "gpipe, in halves": (grid(4, order=in_halves(gpipe)), {"time"}),
        "longer warm-up, halves in order": (grid(4, order=in_halves(long_warm_up)), {"time"}),
        "zb-h1": (grid(4, order=zb_h1), {"time"}),
        "two pipelines of two stages, in halves": (two_by_two(zb_h2), {"memory"}),
        "two pipelines of two stages": (two_by_two(), {"time"}),
        "owners send": (SEND, {"traffic"}),
        "owners send, all microbatches together": (SEND_AT_ONCE, {"traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory", "traffic"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter Overlap ---


OVERLAP: Skips = {
    "ddp_overlap": {
        "no overlap": (buckets(1, 1, 1, 1, 1, 1, wait=True), {"time"}),
        "no overlap, in pairs": (buckets(2, 2, 2, wait=True), {"time"}),
        "each layer": (buckets(1, 1, 1, 1, 1, 1), {"time"}),
        "one bucket": (buckets(6), {"time"}),
        "two buckets": (buckets(3, 3), {"time"}),
        "halves of each layer": (buckets(1, 1, 1, 1, 1, 1, halves=True), {"time"}),
        "halves of two buckets": (buckets(3, 3, halves=True), {"time"}),
        "owners send": (SEND, {"time", "traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"time", "traffic"}),
        "fsdp with prefetching": (replicas("3", prefetch=True), {"time", "traffic"}),
        "load again": (AGAIN, {"time", "steady"}),
    },
    "fsdp_prefetch": {
        "no prefetching": (replicas("3"), {"time"}),
        "all-reduce and keep a shard": (replicas("3", reduce=CUT, prefetch=True), {"time", "memory", "traffic"}),
        "the first layer by all-reduce": (replicas("d33333", prefetch=True), {"memory"}),
        "the first layer by zero1": (replicas("133333", prefetch=True), {"memory"}),
        "ddp": (replicas("d"), {"memory"}),
        "zero1": (replicas("1"), {"time", "memory"}),
        "owners send": (SEND, {"time", "traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"time", "memory"}),
        "load again": (AGAIN, {"time", "steady"}),
    },
    "stream_inference": {
        "load to the device and drop": (infer("llllllll"), {"steady"}),
        "all on the device": (infer("dddddddd"), {"memory"}),
        "park, then load again": (infer("bbbbbbbb"), {"steady"}),
        "half on the device": (infer("dhdhdhdh"), {"memory"}),
        "half from the host": (infer("hlhlhlhl"), {"steady"}),
        "nothing ahead": (infer("hhhhhhhh", ahead=False), {"time"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter Splitting a layer ---


SPLITTING: Skips = {
    "tensor_parallel": {
        "the sum at the input": (grid(1, 4, sum_at_the_input=True), {"traffic"}),
        "one rank": (alone, {"time", "memory"}),
        "four stages": (grid(4), {"time"}),
        "fsdp where one rank computes": (replicas("3"), {"time", "memory", "traffic"}),
        "inputs again": (inputs("aaaa"), {"time", "traffic"}),
    },
    "sequence_parallel": {
        "whole activations": (grid(1, 4), {"memory"}),
        "tensor parallel, every input again": (inputs("nnnnnnnn"), {"time", "traffic"}),
        "tensor parallel, every second input again": (inputs("akakakak"), {"memory"}),
        "four stages": (grid(4), {"time"}),
    },
    "expert_parallel": {
        "no overlap": (experts(together=False), {"time"}),
        "no overlap, microbatches together": (experts(together=True), {"time"}),
        "fsdp with prefetching": (replicas("3", prefetch=True, at_once=True), {"time", "memory", "traffic"}),
        "zero1 with whole experts": (replicas("1", at_once=True), {"time", "memory", "traffic"}),
        "two stages with two replicas": (two_by_two(), {"time", "memory", "traffic"}),
        **all_messages(*["time memory traffic"] * 4, *["time memory traffic steady"] * 2),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter Clusters ---


CLUSTERS: Skips = {
    "three_d": {
        "tensor 2 x data 4": (grid(1, 2, 4, early=True), {"time", "memory", "traffic"}),
        "tensor 2 x data 4, zero1": (grid(1, 2, 4, zero=1, early=True), {"time", "traffic"}),
        "tensor 2 x data 4, fsdp": (grid(1, 2, 4, zero=3, early=True), {"time", "traffic"}),
        "tensor 4 x data 2": (grid(1, 4, 2, early=True), {"time", "memory", "traffic"}),
        "tensor 4 x data 2, microbatches together": (grid(1, 4, 2, together=2, early=True), {"time", "traffic"}),
        "stages 2 x data 4": (grid(2, 1, 4), {"time", "memory", "traffic"}),
        "stages 2 x data 4, zero1": (grid(2, 1, 4, zero=1), {"time", "memory", "traffic"}),
        "stages 4 x data 2": (grid(4, 1, 2), {"time"}),
        "stages 4 x tensor 2": (grid(4, 2), {"time"}),
        "stages 2 x tensor 4": (grid(2, 4), {"time", "traffic"}),
        "gpipe": (grid(2, 2, 2, gpipe), {"time", "memory"}),
        "sums at the input": (grid(2, 2, 2, sum_at_the_input=True), {"time"}),
    },
    "hybrid_shard": {
        "shards of all ranks": (replicas("3"), {"time"}),
        "all-reduce and keep a shard": (replicas("3", reduce=CUT, axis="shard"), {"time", "traffic"}),
        "ddp": (replicas("d"), {"time", "memory"}),
        "zero1 in a machine": (replicas("1", axis="shard"), {"memory"}),
        "four stages with two replicas": (grid(4, 1, 2), {"time"}),
        "four stages with two replicas, zero1": (grid(4, 1, 2, zero=1), {"time"}),
        "owners send": (SEND, {"time", "traffic", "steady"}),
        "whole weights stay, owners send new ones": (HOLD, {"time", "memory"}),
        "load again": (AGAIN, {"steady"}),
    },
    "local_sgd": {
        "one average": (local(8), {"drift"}),
        "every 5 steps": (local(5), {"drift"}),
        "every 6 steps": (local(6), {"drift"}),
        "every 3 steps": (local(3), {"time", "traffic"}),
        "every 2 steps": (local(2), {"time", "traffic"}),
        "every step": (local(1), {"time", "traffic"}),
        "ddp": (replicas("d"), {"time", "traffic"}),
        "zero1": (replicas("1"), {"time", "traffic"}),
        "fsdp": (replicas("3"), {"time", "traffic"}),
        "a parameter server": (replicas("h", owners=1), {"time", "traffic"}),
        "one rank": (alone, {"time", "memory"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter In microseconds ---


IN_BOTH_MACHINES = "[model.rank % 2 + at for at in range(0, 8, 2)]"
PAIRS = "[model.rank // 2 * 2, model.rank // 2 * 2 + 1]"
ACROSS = altered(
    "axis_inside",
    (
        ('model.index("gpu"), len(model.axis("gpu"))', "model.rank // 2, 4"),
        ('model.index("machine")', "model.rank % 2"),
        ('group="gpu"', f"group={IN_BOTH_MACHINES}"),
        ('group="machine"', f"group={PAIRS}"),
    ),
)
"""The reference of `axis_inside` with the shards of a microbatch in both machines."""

SCATTER = '= await model.scatterreduce(grad_weights[layer], layer, group="gpu")'
GATHER = '= await model.allgather(grad_weights[layer], layer, group="gpu")'
BETWEEN = '= await model.allreduce(grad_weights[layer], layer, group="machine")'
ALL = "= await model.allreduce(grad_weights[layer], layer)"
KEEP = "= grad_weights[layer]"
EXCHANGED = (('group="gpu"', 'group="other"'), ('group="machine"', 'group="gpu"'), ('group="other"', 'group="machine"'))

MICROSECONDS: Skips = {
    "fsdp_bound": {
        "two microbatches in a pass": (passes(2), {"time", "traffic"}),
        "one microbatch in a pass": (passes(1), {"time", "traffic"}),
        "no prefetching": (passes(4, prefetch=False), {"time"}),
        "full weights are kept": (passes(4, keep=True), {"memory"}),
        "full weights are kept, two in a pass": (passes(2, keep=True), {"time", "traffic"}),
        "full weights are kept, one in a pass": (passes(1, keep=True), {"time", "traffic"}),
        "all-reduce and keep a shard": (replicas("3", prefetch=True, at_once=True, reduce=CUT), {"time", "traffic"}),
        "ddp": (replicas("d", at_once=True), {"memory"}),
        "zero1": (replicas("1"), {"time"}),
        "zero1, microbatches together": (replicas("1", at_once=True), {"time", "memory"}),
        "owners send": (SEND_AT_ONCE, {"time", "traffic"}),
        "load again": (AGAIN_AT_ONCE, {"time", "steady"}),
    },
    "axis_inside": {
        "tensor across machines": (ACROSS, {"time"}),
        "tensor over all": (grid(1, 8), {"time", "traffic"}),
        "fsdp inside, sums between": (replicas("3", axis="gpu"), {"time", "memory"}),
        "fsdp over all": (replicas("3"), {"time"}),
        "two stages in two machines": (grid(2, 4), {"time", "traffic"}),
        "four stages of two": (grid(4, 2), {"time"}),
        "sums at the input": (grid(1, 4, 2, sum_at_the_input=True), {"time", "traffic"}),
        "one rank in each machine": (replicas("d"), {"time", "memory"}),
        "load again": (AGAIN_AT_ONCE, {"time", "steady"}),
    },
    "tp_limit": {
        "groups of four": (grid(1, 4, 2), {"time", "traffic"}),
        "groups of four, microbatches together": (grid(1, 4, 2, together=2), {"time", "traffic"}),
        "one group of eight": (grid(1, 8), {"time", "traffic"}),
        "sums at the input": (grid(1, 2, 4, sum_at_the_input=True), {"traffic"}),
        "one GPU for each microbatch": (replicas("d"), {"time", "memory", "traffic"}),
        "fsdp, four ranks computing": (replicas("3"), {"time", "traffic"}),
        "two stages of groups of two": (grid(2, 2, 2), {"time"}),
        "four stages of two": (grid(4, 2), {"time", "traffic"}),
        "load again": (AGAIN_AT_ONCE, {"time", "steady"}),
    },
    "hierarchy": {
        "one ring": (altered("hierarchy", ((SCATTER, KEEP), (BETWEEN, ALL), (GATHER, KEEP))), {"time"}),
        "all-reduce inside, then between": (
            altered("hierarchy", ((SCATTER, SCATTER.replace("scatterreduce", "allreduce")), (GATHER, KEEP))),
            {"time", "traffic"},
        ),
        "scatter between, all-reduce inside": (altered("hierarchy", EXCHANGED), {"time"}),
        "scatter and gather over all": (
            altered("hierarchy", ((', group="gpu"', ""), (BETWEEN, KEEP))),
            {"time"},
        ),
        "zero1 over all": (replicas("1"), {"time"}),
        "fsdp over all": (replicas("3"), {"time", "traffic"}),
        "owners send new weights": (HOLD_AT_ONCE, {"time", "traffic"}),
        "one rank": (alone, {"time", "memory"}),
        "load again": (AGAIN_AT_ONCE, {"time", "steady"}),
    },
    "bucket_size": {
        "each layer": (buckets(*[1] * 16), {"time"}),
        "pairs": (buckets(*[2] * 8), {"time"}),
        "fives": (buckets(5, 5, 5, 1), {"time"}),
        "eights": (buckets(8, 8), {"time"}),
        "one bucket": (buckets(16), {"time"}),
        "threes": (buckets(3, 3, 3, 3, 3, 1), {"record"}),
        "fours, no overlap": (buckets(4, 4, 4, 4, wait=True), {"time"}),
        "halves of fours": (buckets(4, 4, 4, 4, halves=True), {"time"}),
        "fsdp with prefetching": (replicas("3", prefetch=True), {"time", "traffic"}),
        "load again": (AGAIN_AT_ONCE, {"time", "steady"}),
    },
    "park_or_recompute": {
        "only parking": (host_plan("pppppkk"), {"time"}),
        "only recomputing": (host_plan("aaakaak"), {"time"}),
        "only recomputing, and keeping what is made again": (inputs("aaaaaakk"), {"memory"}),
        "everything kept": (host_plan("kkkkkkk"), {"memory"}),
        "parks what is needed first": (host_plan("apaappk"), {"time"}),
        "each copy is awaited at once": (inputs("apapapkk"), {"time"}),
        "nothing kept": (host_plan("aaaaaaa"), {"time"}),
    },
}  # fmt: skip


# --- Solutions that skip the lessons of the chapter The frontier ---


FIRST_ALONE = (
    "    for k in range(2 * rank + 2)",
    "    if not below:\n        at = slots.index(('F0', 'B1'))\n        slots[at : at + 1] = [('F0',), ('B1',)]\n"
    "    for k in range(2 * rank + 2)",
)


FRONTIER: Skips = {
    "uneven_stages": {
        "equal counts": (uneven((3, 2, 2, 3)), {"time"}),
        "fewer layers at the start": (uneven((2, 2, 3, 3)), {"time"}),
        "fewer layers at both ends": (uneven((2, 3, 3, 2)), {"time"}),
        "more layers at the start": (uneven((4, 3, 2, 1)), {"memory"}),
        "gpipe": (uneven((4, 3, 2, 1), lambda rank, ranks: 99), {"time", "memory"}),
        "gpipe, the head alone": (uneven((3, 3, 3, 1), lambda rank, ranks: 99), {"time", "memory"}),
        **all_messages(*["memory traffic"] * 4, *["steady traffic"] * 2),
    },
    "vocab_parallel": {
        "the head on one rank": (uneven((3, 3, 2, 1)), {"time"}),
        "the head on one rank, with a block": (uneven((3, 2, 2, 2)), {"time", "memory"}),
        "the head on one rank, gpipe": (uneven((3, 3, 2, 1), lambda rank, ranks: 99), {"time", "memory"}),
        **all_messages(*["memory traffic"] * 4, *["steady memory traffic"] * 2),
    },
    "v_half": {
        "1f1b of two layers a rank": (grid(8), {"time", "memory"}),
        "gpipe": (grid(8, order=gpipe), {"time", "memory"}),
        "zb-h1 of two layers a rank": (grid(8, order=zb_h1), {"memory"}),
        "interleaved": (grid(8, order=interleaved, chunks=2), {"time", "memory"}),
        "zb-v": (grid(8, order=zb_v), {"memory"}),
        "v-min": (grid(8, order=v_min), {"time"}),
        **all_messages(*["memory traffic"] * 4, *["steady traffic"] * 2),
    },
    "two_ways": {
        "1f1b, one forward further ahead, with pairs": (pipeline(in_pairs(long_warm_up)), {"time", "memory"}),
        "interleaved with pairs": (pipeline(in_pairs(interleaved)), {"time", "memory"}),
        "zb-h1": (pipeline(zb_h1), {"time", "memory"}),
        "zb-v": (pipeline(zb_v), {"time"}),
        "two replicas of two stages, zb-h1": (two_by_two(zb_h1), {"time", "memory"}),
        "two replicas of a V of two ranks": (two_by_two(dualpipev), {"memory"}),
        "two replicas of two stages, 1f1b with pairs": (two_by_two(in_pairs(long_warm_up)), {"time", "memory"}),
        "the last rank's first backward is no pair": (altered("two_ways", (FIRST_ALONE,)), {"record"}),
        "from both ends": (module_of("solutions/records/two_ways_from_both_ends.py").two_ways, {"memory"}),
        **all_messages(
            "time memory traffic", "time traffic", *["time memory traffic"] * 2, "time steady", "time steady traffic"
        ),
    },
    "weight_versions": {
        "a flush each step": (pipeline(one_f_one_b), {"time"}),
        "gpipe": (pipeline(gpipe), {"time"}),
        "owners send": (SEND, {"traffic"}),
        "owners send, all microbatches together": (SEND_AT_ONCE, {"traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory", "traffic"}),
        "whole weights stay, all microbatches together": (HOLD_AT_ONCE, {"memory", "traffic"}),
    },
    "host_update": {
        "each step waits for the host": (host_updates(), {"time", "host"}),
        "each step waits for the host, microbatches in turn": (host_updates(at_once=False), {"time", "memory", "host"}),
    },
    "streaming_diloco": {
        "all layers after every fourth step, and ranks wait": (outer_steps(all_together, waits=True), {"time"}),
        "all layers after every fourth step, a step late": (outer_steps(all_together), {"time", "memory"}),
        "two layers after every second step": (outer_steps(two_together), {"time", "memory"}),
        "a layer after each step, and ranks wait": (outer_steps(one_after_another, waits=True), {"time"}),
        "all layers after each step": (outer_steps(lambda step: range(4), waits=True), {"time", "traffic"}),
        "gradients are summed in each step": (outer_steps(all_together, sums_gradients=True), {"time", "traffic"}),
        "a layer after each step, the last one at the end": (outer_steps(one_after_another), {"record"}),
    },
}


# --- Solutions that skip the lessons of the chapter Long context ---


CONTIGUOUS, CONTIGUOUS_KEPT = ring(zigzag=False, kept=False), ring(zigzag=False, kept=True)
KEPT = ring(zigzag=True, kept=True)

LONG_CONTEXT: Skips = {
    "ring_context": {
        "contiguous tokens": (CONTIGUOUS, {"time", "memory"}),
        "contiguous tokens, blocks kept": (CONTIGUOUS_KEPT, {"time", "memory"}),
        "blocks kept": (KEPT, {"memory"}),
        "heads are exchanged": (altered("ulysses", ()), {"time", "traffic"}),
    },
    "ulysses": {
        "contiguous tokens": (CONTIGUOUS, {"time", "memory", "traffic"}),
        "contiguous tokens, blocks kept": (CONTIGUOUS_KEPT, {"time", "memory", "traffic"}),
        "blocks kept": (KEPT, {"memory", "traffic"}),
        "a ring in zigzag": (altered("ring_context", ()), {"memory", "traffic"}),
    },
    "two_dimensions": {
        "heads among all": (altered("ulysses", ()), {"time"}),
        "a ring in zigzag over all": (altered("ring_context", ()), {"time", "traffic"}),
    },
}


SKIPS: Skips = {
    **CLASSICS, **MEMORY, **PIPELINES, **OVERLAP, **SPLITTING, **CLUSTERS, **MICROSECONDS, **FRONTIER, **LONG_CONTEXT,
}  # fmt: skip
"""Of all chapters."""

# --- Ways around a lesson that the targets allow, each with three stars ---
#
# One that is stopped goes to its chapter's table.
#
# Two stars of a classic are decided by the original's targets. For the third star of `pipeline` and `gpipe` a rank
# may send 2.1M elements, because a pipeline of two laps sends 2,097,152; two pipelines of two stages send less. They
# are pipelines: each rank has some of the layers, and activations travel in messages. The catalog has them as a
# record.


UNSTOPPED: Skips = {
    "pipeline": {"two pipelines of two stages": (two_by_two(), set())},
    "gpipe": {"two pipelines of two stages": (two_by_two(), set())},
}
