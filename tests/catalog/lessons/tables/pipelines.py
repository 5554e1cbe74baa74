"""Solutions that skip the lessons of the chapter Pipelines."""

from __future__ import annotations

from lib.pipelines import pipeline
from lib.pipelines.orders import gpipe, interleaved, interleaved_zb, one_f_one_b, v_half, v_min, zb_h1, zb_h2
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.orders import in_halves, long_warm_up, one_by_one
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.tables.common import HOLD, SEND, SEND_AT_ONCE, Skips, all_messages, two_by_two

SKIPS: Skips = {
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
