"""Solutions that skip the lessons of the chapter Splitting a layer."""

from __future__ import annotations

from tests.catalog.lessons.families.alone import alone
from tests.catalog.lessons.families.experts import experts
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import Skips, all_messages, two_by_two

SKIPS: Skips = {
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
