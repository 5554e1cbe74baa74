"""Solutions that skip the lessons of the chapter The frontier."""

from __future__ import annotations

from lib.pipelines import pipeline
from lib.pipelines.orders import dualpipev, gpipe, interleaved, one_f_one_b, v_min, zb_h1, zb_v
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.host_updates import host_updates
from tests.catalog.lessons.families.orders import in_pairs, long_warm_up
from tests.catalog.lessons.families.outer_steps import all_together, one_by_one, outer_steps, two_together
from tests.catalog.lessons.tables.common import HOLD, HOLD_AT_ONCE, SEND, SEND_AT_ONCE, Skips, all_messages, two_by_two
from tests.support.mistakes import altered
from tests.support.schedules.splits import uneven
from tests.support.variants import module_of

FIRST_ALONE = (
    "    for k in range(2 * rank + 2)",
    "    if not below:\n        at = slots.index(('F0', 'B1'))\n        slots[at : at + 1] = [('F0',), ('B1',)]\n"
    "    for k in range(2 * rank + 2)",
)


SKIPS: Skips = {
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
        "a layer after each step, and ranks wait": (outer_steps(one_by_one, waits=True), {"time"}),
        "all layers after each step": (outer_steps(lambda step: range(4), waits=True), {"time", "traffic"}),
        "gradients are summed in each step": (outer_steps(all_together, sums_gradients=True), {"time", "traffic"}),
        "a layer after each step, the last one at the end": (outer_steps(one_by_one), {"record"}),
    },
}
