"""Solutions that skip the lessons of the chapter Clusters."""

from __future__ import annotations

from lib.pipelines.orders import gpipe
from tests.catalog.lessons.families.alone import alone
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.local import local
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import AGAIN, CUT, HOLD, SEND, Skips

SKIPS: Skips = {
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
