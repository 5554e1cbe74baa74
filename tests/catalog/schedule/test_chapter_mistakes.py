"""Wrong solutions of the chapters memory, overlap and clusters: each is a reference with one thing changed, and is told
what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import solutions
from lib import run
from puzzles.catalog.schedule import CHAPTERS, PUZZLES
from puzzles.failure import Failure
from puzzles.tracks.schedule.judge import score_trace

FOLDER = Path(solutions.__file__).parent
NAMES = ("memory", "overlap", "clusters")

GATHER = "        weights[layer] = await model.allgather(weights[layer], layer)\n"
CUT = "        weights[layer] = weights[layer].shard(model.rank, model.RANKS)\n"
SCATTER = "        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)\n"
FORGET = "        if layer == 0 or (layer < last and layer % EVERY):\n"
AGAIN = "model.forward(again, activations[again], weights[again])"
SEND = "model.allreduce([grad"
AHEAD = """\
        if layer:
            gather = model.allgather(weights[layer - 1], layer - 1)
        grad"""
BETWEEN = '        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="replica")\n'
OVER_DP = '        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="dp")\n'
SUM = "            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)\n"
AVERAGE = "                weights[layer] = await model.allreduce(weights[layer], layer)\n"

Edits = list[tuple[str, str]]
MISTAKES: list[tuple[str, str, Edits, tuple[str, ...]]] = [
    ("zero1", "weights stay in shards", [(GATHER, "")], ("full weights again", "cannot be repeated", "`allgather`")),
    ("zero1", "the weight is not cut", [(CUT, "")], ("update(layer=0)", "shard 0 of 4", "the weight is unsharded")),
    (
        "zero1",
        "the gradient is cut but not summed",
        [(SCATTER, SCATTER.replace("await model.scatterreduce(grad_weights[layer], layer)",
                                   "grad_weights[layer].shard(model.rank, model.RANKS)"))],
        ("t=8", "update(layer=0)", "only batch 0 of 4"),
    ),
    ("zero2", "a batch twice", [("[batch]", "[model.rank]")], ("t=14.5", "batch 0 is in both", "sum each batch once")),
    (
        "zero2",
        "only the last gradient",
        [("grad_weights[layer] + shard if layer in grad_weights else shard", "shard")],
        ("update(layer=0)", "only batches 3, 7, 11, 15 of 16"),
    ),
    ("zero2", "weights stay in shards", [(GATHER, "")], ("full weights again", "cannot be repeated")),
    ("checkpoint", "nothing is forgotten", [(FORGET, "        if False:\n")], ("15,204,352 elements", "< 10M")),
    (
        "checkpoint",
        "the last segment is forgotten too",
        [(FORGET, "        if layer == 0 or layer % EVERY:\n")],
        ("28 timesteps", "< 27"),
    ),
    (
        "checkpoint",
        "computed again from the wrong input",
        [(AGAIN, AGAIN.replace("activations[again]", "activations[start]"))],
        ("forward(layer=4)", "input activation of layer 3", "pass the input activation of layer 4"),
    ),
    ("checkpoint", "not computed again", [(f"activations[again + 1] = {AGAIN}", "pass")],
     ("activations[5]", "nothing is stored under this key")),
    ("offload", "the copy is awaited at once", [("model.offload(", "await model.offload(", ), ("= await leaving",
     "= leaving")], ("24.5 timesteps", "< 20")),
    ("offload", "the input stays", [("        if layer == 0 or layer in away:", "        if layer == 0:")],
     ("12,582,912 elements", "< 7.4M")),
    ("offload", "the handle is taken for the copy", [("= await leaving", "= leaving")],
     ("parked[1]", "offload()", "still pending; await it first")),
    ("offload", "one more than the host may hold", [("range(1, model.LAYERS - 2)", "range(1, model.LAYERS - 1)")],
     ("parks 6,291,456 elements on the host", "< 5.3M", "Park fewer values")),
    ("ddp_overlap", "each sum is awaited at once", [(SEND, f"await {SEND}"), ("await handle", "handle")],
     ("20.2 timesteps", "< 15")),
    ("ddp_overlap", "the handle is taken for the sums", [("await handle", "handle")],
     ("values are there when it has been awaited", "allreduce(layer=5", "still pending; await it first")),
    ("ddp_overlap", "a call for each layer", [("len(bucket) == 2", "len(bucket) == 1")], ("15.4 timesteps", "< 15")),
    ("ddp_overlap", "one bucket at the end", [("len(bucket) == 2 or ", "")], ("18.4 timesteps", "< 15")),
    ("ddp_overlap", "buckets of three", [("len(bucket) == 2", "len(bucket) == 3")], ("15.4 timesteps", "< 15")),
    (
        "fsdp_prefetch",
        "the scatter is ahead of the gather",
        [(AHEAD, "        grad"), ("= await gather\n    del", "= await model.allgather(weights[layer - 1], layer - 1)\n"
          "    del")],
        ("20 timesteps", "< 16"),
    ),
    (
        "fsdp_prefetch",
        "the handle is taken for the weight",
        [("= await gather\n        if layer < top", "= gather\n        if layer < top")],
        ("weights['full']", "allgather(layer=0)", "still pending; await it first"),
    ),
    ("fsdp_prefetch", "the last scatter is never awaited", [("            grad_weights[0] = await scatter\n",
     "            continue\n")], ("the end", "scatterreduce(layer=0)", "never awaited")),
    ("stream_inference", "the handle is taken for the weight", [("await coming", "coming")],
     ("weights[0]", "fetch()", "still pending; await it first")),
    ("stream_inference", "weights stay", [(", weights[layer]\n    model", "\n    model")],
     ("2,359,296 elements", "< 0.8M")),
    ("stream_inference", "half of the batches", [("range(model.BATCHES)", "[0]")], ("output", "batch 1")),
    ("stream_inference", "no output", [("    model.set_output(activations[model.LAYERS])\n", "")],
     ("output", "batches 0, 1", "set_output")),
    ("three_d", "parts are not added up",
     [('await model.allreduce(activations["part"], layer + 1, group="tp")', 'activations["part"]')],
     ("t=0.5", "forward(layer=1)", "part 0 of 2 of a sum", "allreduce")),
    ("three_d", "a sum over all ranks", [('layer - 1, group="tp"', "layer - 1")], ("nobody can move", "receive(2)")),
    ("three_d", "gradients are summed over the wrong axis", [('layer, group="dp"', 'layer, group="tp"')],
     ("allreduce(layer=2)", "differ in shards", "shard 0 of 2", "shard 1 of 2")),
    ("three_d", "replicas are not summed", [(OVER_DP, "")], ("update(layer=2)", "batches 0, 1 of 4")),
    ("three_d", "GPipe's order", [("min(stages - stage - 1, microbatches)", "microbatches")],
     ("3,670,016 elements", "< 3.6M")),
    ("three_d", "one microbatch at a time", [("min(stages - stage - 1, microbatches)", "0")],
     ("13.7 timesteps", "< 11")),
    ("hybrid_shard", "machines are not summed", [(BETWEEN, "")], ("update(layer=0)", "batches 0-3 of 8")),
    ("hybrid_shard", "gathers without a group", [(', group="shard"', "")],
     ("allgather(layer=0)", "rank 0 and rank 4", "gather each shard once")),
    ("hybrid_shard", "different shards are summed", [(', group="replica"', "")],
     ("allreduce(layer=0)", "differ in shards")),
    ("local_sgd", "no average", [(AVERAGE, "                pass\n")],
     ("set_final_weight(layer=0)", "since step 0", "average the replicas")),
    ("local_sgd", "the same batches in every step", [("[model.rank], step)", "[model.rank])")],
     ("forward(layer=0)", "the weight is at step 1", "the activation is of step 0")),
    ("local_sgd", "one step too few", [("range(steps)", "range(steps - 1)")],
     ("set_final_weight(layer=0)", "step 7", "not the one after all 8 steps")),
    ("local_sgd", "gradients are summed in every step",
     [("            new = model", SUM + "            new = model"), (AVERAGE, "                pass\n")],
     ("103.5 timesteps", "< 53")),
    ("local_sgd", "one average", [("(step + 1) % TOGETHER == 0 or ", "")],
     ("updated 8 times on a rank without an average", "at most 4")),
]  # fmt: skip


def told(slug: str, edits: Edits) -> str:
    """What the author of a changed reference reads: the refusal, or which targets are missed and what to do."""
    source = (FOLDER / f"{slug}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(source, "mine.py", "exec"), names)
    goal = PUZZLES[slug].goal
    outcome = run(names[slug], *goal.size, setting=goal.setting)
    if outcome.error is not None:
        return str(outcome.error)
    score = score_trace(outcome.trace, PUZZLES[slug], goal.size)
    if isinstance(score, Failure):
        return score.sentence
    assert score.stars == 1
    return "; ".join((*score.missed, score.advice))


@pytest.mark.parametrize(
    ("slug", "edits", "facts"), [pytest.param(s, e, f, id=f"{s}: {name}") for s, name, e, f in MISTAKES]
)
def test_a_mistake_is_told_with_its_facts(slug: str, edits: Edits, facts: tuple[str, ...]) -> None:
    message = told(slug, edits)
    assert [fact for fact in facts if fact not in message] == [], message


def test_every_puzzle_of_these_chapters_has_three_mistakes() -> None:
    count = Counter(slug for slug, *_ in MISTAKES)
    assert {*count} == {slug for chapter in CHAPTERS if chapter.name in NAMES for slug in chapter.slugs}
    assert min(count.values()) >= 3
