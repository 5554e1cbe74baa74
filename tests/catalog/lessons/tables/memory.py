"""Solutions that skip the lessons of the chapter Memory."""

from __future__ import annotations

from tests.catalog.lessons.families.alone import alone
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import AGAIN, AGAIN_AT_ONCE, CUT, HOLD, HOLD_AT_ONCE, SEND, SEND_AT_ONCE, Skips
from tests.support.mistakes import altered

GATHER = "        weights[layer] = await model.allgather(weights[layer], layer)\n"

SKIPS: Skips = {
    "zero1": {
        "ddp": (replicas("d"), {"memory"}),
        "all-reduce and keep a shard": (replicas("1", reduce=CUT), {"time", "traffic"}),
        "all-reduce, owners send new weights": (replicas("o"), {"traffic"}),
        "fsdp": (replicas("3"), {"traffic"}),
        "fsdp that gathers every weight twice": (grid(replicas=4, zero=3), {"time", "traffic"}),
        "no gather at the end": (altered("zero1", ((GATHER, ""),)), {"steady"}),
        "owners send": (SEND, {"time", "traffic"}),
        "load again": (AGAIN, {"steady"}),
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
        "pipeline": (grid(4), {"time", "traffic"}),
        "owners send": (SEND, {"time", "traffic"}),
        "owners send, all microbatches together": (SEND_AT_ONCE, {"time", "memory"}),
        "whole weights stay, owners send new ones": (HOLD, {"time"}),
        "whole weights stay, all microbatches together": (HOLD_AT_ONCE, {"memory"}),
        "load again": (AGAIN, {"steady"}),
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
