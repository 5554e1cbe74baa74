"""Solutions that skip the lessons of the chapter The frontier."""

from __future__ import annotations

from lib.schedules import pipeline
from lib.schedules.orders import dualpipev, gpipe, interleaved, one_f_one_b, v_min, zb_h1, zb_v
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.host_updates import host_updates
from tests.catalog.lessons.families.orders import in_pairs, long_warm_up
from tests.catalog.lessons.families.outer_steps import all_together, one_by_one, outer_steps, two_together
from tests.catalog.lessons.tables.common import HOLD, HOLD_AT_ONCE, SEND, SEND_AT_ONCE, Skips, all_messages, two_by_two
from tests.support.mistakes import altered
from tests.support.schedules.splits import uneven
from tests.support.variants import module_of

DEALT = "dealt(setting.lengths, setting.costs.slow, model.RANKS)[model.rank]"

PAIR = """out, (new, grad) = model.forward_backward(
                (layer, activations[key], weights[layer]), (layers[other], *behind)
            )"""
ONE_BY_ONE = """out = model.forward(layer, activations[key], weights[layer])
            new, grad = model.backward(layers[other], *behind)"""
FIRST_ALONE = (
    "    for k in range(2 * rank + 2)",
    "    if not below:\n        at = slots.index(('F0', 'B1'))\n        slots[at : at + 1] = [('F0',), ('B1',)]\n"
    "    for k in range(2 * rank + 2)",
)

TICKS, LEAST = 'kind.ticks["update"]', "loads.index(min(loads))"
SIX = "(6, 3, 2, 2)"
KEPT = (
    "            if layer in trained:\n                activations[layer",
    "            if True:\n                activations[layer",
)

MORE_IN_FLIGHT = "> ranks - rank"
AWAITED = (
    "sums[batch] = model.allreduce(grad, head - 1)",
    'grad_activations["sum", batch] = await model.allreduce(grad, head - 1)',
)
STAR = (
    ("(me - 1, model.BATCHES + batch) if me else (last, batch)", "(last, model.BATCHES + batch)"),
    ("if me < last - 1:", "if False:"),
    (
        "await model.pass_to(0, inp, tag=batch)",
        "[await model.pass_to(r, inp, tag=model.BATCHES + batch) for r in range(last)]",
    ),
)

DROPPED = """            if not first:  # the next step computes with newer weights
                del weights[layer]
"""
JOINED = """            if layer == 1 and not first:
                await join()
"""

ROOM = "2 * ((ranks + 2) // 2))[me]"

SKIPS: Skips = {
    "straggler": {
        "in the given order": (altered("straggler", ((", key=lambda batch: -lengths[batch]", ""),)), {"time"}),
        "in turn": (altered("straggler", ((DEALT, "range(model.rank, 12, 4)"),)), {"time"}),
        "blocks of three": (altered("straggler", ((DEALT, "range(3 * model.rank, 3 * model.rank + 3)"),)), {"time"}),
        "equal tokens": (altered("straggler", (("setting.costs.slow, model", "{}, model"),)), {"time"}),
        "rank 3 does nothing": (altered("straggler", (("range(ranks), key", "range(3), key"),)), {"time"}),
    },
    "uneven_stages": {
        "equal counts": (uneven((3, 2, 2, 3)), {"time"}),
        "fewer layers at the start": (uneven((2, 2, 3, 3)), {"time"}),
        "fewer layers at both ends": (uneven((2, 3, 3, 2)), {"time"}),
        "more layers at the start": (uneven((4, 3, 2, 1)), {"memory"}),
        "gpipe": (uneven((4, 3, 2, 1), lambda rank, ranks: 99), {"time", "memory"}),
        "gpipe, the head alone": (uneven((3, 3, 3, 1), lambda rank, ranks: 99), {"time", "memory"}),
        **all_messages(*["memory traffic"] * 4, *["steady traffic"] * 2),
    },
    "frozen_encoder": {
        "equal counts": (altered("frozen_encoder", ((SIX, "(4, 3, 3, 3)"),)), {"time", "memory"}),
        "the encoder alone": (altered("frozen_encoder", ((SIX, "(7, 2, 2, 2)"),)), {"time"}),
        "more frozen layers with the trained": (
            altered("frozen_encoder", ((SIX, "(5, 4, 2, 2)"),)),
            {"time", "memory"},
        ),
        "inputs of frozen layers are kept": (altered("frozen_encoder", (KEPT,)), {"memory"}),
        "gpipe": (altered("frozen_encoder", (("min(last - me, model.BATCHES)", "model.BATCHES"),)), {"time", "memory"}),
    },
    "whole_update": {
        "owners in turn": (altered("whole_update", ((LEAST, "layer % ranks"),)), {"time", "traffic"}),
        "equal elements": (altered("whole_update", ((TICKS, "kind.weight"),)), {"time"}),
        "equal numbers": (altered("whole_update", ((TICKS, "1"),)), {"time", "traffic"}),
        "one owner": (altered("whole_update", ((LEAST, "0"),)), {"time", "memory", "traffic"}),
        "broadcasts in the order of layers": (
            altered("whole_update", (("sorted(of, key=ends.get)", "sorted(of)"),)),
            {"time"},
        ),
    },
    "vocab_parallel": {
        "the head on one rank": (uneven((3, 3, 2, 1)), {"time"}),
        "the head on one rank, with a block": (uneven((3, 2, 2, 2)), {"time", "memory"}),
        "the head on one rank, gpipe": (uneven((3, 3, 2, 1), lambda rank, ranks: 99), {"time", "memory"}),
        "as many in flight as in 1f1b": (altered("vocab_parallel", ((MORE_IN_FLIGHT, ">= ranks - rank"),)), {"time"}),
        "each all-reduce is awaited at once": (altered("vocab_parallel", (AWAITED,)), {"time"}),
        "the last rank sends to all": (altered("vocab_parallel", STAR), {"traffic"}),
        "no backward is late": (altered("vocab_parallel", (("TSFB", "BSFT"),)), {"memory"}),
        **all_messages(*["memory traffic"] * 4, *["steady memory traffic"] * 2),
    },
    "v_half": {
        "1f1b of two layers a rank": (grid(8), {"time", "memory"}),
        "gpipe": (grid(8, order=gpipe), {"time", "memory"}),
        "zb-h1 of two layers a rank": (grid(8, order=zb_h1), {"memory"}),
        "interleaved": (grid(8, order=interleaved, chunks=2), {"time", "memory"}),
        "zb-v": (grid(8, order=zb_v), {"memory"}),
        "v-min": (grid(8, order=v_min), {"time"}),
        "room for nine": (altered("v_half", ((ROOM, "9)[me]"),)), {"time"}),
        "room for eleven": (altered("v_half", ((ROOM, "11)[me]"),)), {"memory"}),
        "room for thirteen": (altered("v_half", ((ROOM, "13)[me]"),)), {"memory"}),
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
        "the V without pairs": (altered("two_ways", ((PAIR, ONE_BY_ONE),)), {"time", "memory"}),
        "the last rank's first backward is no pair": (altered("two_ways", (FIRST_ALONE,)), {"record"}),
        "from both ends": (module_of("solutions/records/two_ways_from_both_ends.py").two_ways, {"memory"}),
        **all_messages(
            "time memory traffic", "time traffic", *["time memory traffic"] * 2, "time steady", "time steady traffic"
        ),
    },
    "weight_versions": {
        "a flush each step": (pipeline(one_f_one_b), {"time"}),
        "gpipe": (pipeline(gpipe), {"time"}),
        "every version is kept": (
            altered("weight_versions", (("weights.pop(step - 1, None)", "weights"),)),
            {"memory"},
        ),
        "owners send": (SEND, {"traffic"}),
        "owners send, all microbatches together": (SEND_AT_ONCE, {"traffic"}),
        "whole weights stay, owners send new ones": (HOLD, {"memory", "traffic"}),
        "whole weights stay, all microbatches together": (HOLD_AT_ONCE, {"memory", "traffic"}),
    },
    "host_update": {
        "each step waits for the host": (host_updates(), {"time", "host"}),
        "each step waits for the host, microbatches in turn": (host_updates(at_once=False), {"time", "memory", "host"}),
        "the next step's first weight comes late": (
            altered(
                "host_update", (("if renewed and layer == 0:", "if False:"), ("if renewed and layer:", "if renewed:"))
            ),
            {"time"},
        ),
        "weights of both versions": (altered("host_update", ((DROPPED, ""),)), {"memory"}),
        "updates are pending through the next forward": (altered("host_update", ((JOINED, ""),)), {"memory"}),
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
