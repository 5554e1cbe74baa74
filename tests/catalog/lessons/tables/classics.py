"""Solutions that skip the lessons of the classics; those that meet the original's targets keep two stars."""

from __future__ import annotations

from tests.catalog.lessons.families.alone import alone
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.orders import one_by_one
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import AGAIN, CUT, HOLD, SEND, Skips
from tests.support.mistakes import altered

SUM = "await model.scatterreduce(grad_weights[layer], layer)"
CUT_SUM = "(await model.allreduce(grad_weights[layer], layer)).shard(model.rank, model.RANKS)"
ALL_REDUCED = altered("pipeline_fsdp", ((SUM, CUT_SUM),))


SKIPS: Skips = {
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
