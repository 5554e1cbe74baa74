"""Solutions that skip the lessons of the chapter Overlap."""

from __future__ import annotations

from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.infer import infer
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import AGAIN, CUT, HOLD, SEND, Skips

SKIPS: Skips = {
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
