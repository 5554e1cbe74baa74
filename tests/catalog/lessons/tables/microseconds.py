"""Solutions that skip the lessons of the chapter In microseconds."""

from __future__ import annotations

from tests.catalog.lessons.families.alone import alone
from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.host_plans import host_plan
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.passes import passes
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import AGAIN_AT_ONCE, CUT, HOLD_AT_ONCE, SEND_AT_ONCE, Skips
from tests.support.mistakes import altered

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

SKIPS: Skips = {
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
