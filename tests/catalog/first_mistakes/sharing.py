"""First mistakes on one device, with the batch split, and with the model's state sharded."""

from __future__ import annotations

from tests.support.mistakes import Mistake

UPDATED = "weights[layer], opt_states[layer] = model.update("
SCATTER = "        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)\n"
REDUCE = "        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)\n"
AWAITED = "        grad_weights[layer] = await"
FORGETS = "del activations[layer], grad_activations[layer + 1]\n"
SUM = "grad_weights[layer] + grad if layer in grad_weights else grad"
FINAL = "        model.set_final_weight(layer, weights[layer])\n"

SHARING = [
    Mistake(
        "basic",
        "keeps everything",
        (("        " + FORGETS, ""),),
        ("2,097,152 elements of that are not read again", "2 activations of layers 0, 1", "Delete them before"),
    ),
    Mistake(
        "basic",
        "the loss's gradient in the wrong place",
        (("[model.LAYERS] = model.loss", "[0] = model.loss"),),
        ("grad_activations[2]", "nothing is stored under this key", "has the keys 0"),
    ),
    Mistake(
        "basic",
        "backward in the order of forward",
        (("in reversed(range(model.LAYERS))", "in range(model.LAYERS)"),),
        ("grad_activations[1]", "has the keys 2"),
    ),
    Mistake(
        "basic",
        "the updated weight is thrown away",
        ((UPDATED, "model.update("),),
        ("set_final_weight(layer=0)", "was never updated", "pass the weight that update returned"),
    ),
    Mistake(
        "basic",
        "backward reads the layer's output",
        (
            ("layer, activations[layer], grad", "layer, activations[layer + 1], grad"),
            ("    del activations[model.LAYERS]\n", ""),
        ),
        ("backward(layer=1)", "after the last layer", "pass the input activation of layer 1"),
    ),
    Mistake(
        "grad_accum",
        "keeps the last gradient only",
        ((SUM, "grad"),),
        ("covers only batch 3 of 4", "sum in batches 0-2 with '+'"),
    ),
    Mistake(
        "grad_accum",
        "keeps the activations",
        (("            " + FORGETS, ""),),
        ("262,144 elements of that are not read again", "activation gradients of layers 0, 1"),
    ),
    Mistake(
        "grad_accum",
        "every batch each time",
        (("[batch])", "range(model.BATCHES))"),),
        ("'+'", "batch 0 is in both", "sum each batch once"),
    ),
    Mistake(
        "grad_accum",
        "the same batch each time",
        (("get_activation([batch])", "get_activation([0])"),),
        ("batch 0 is in both", "sum each batch once"),
    ),
    Mistake(
        "grad_accum",
        "no final weight",
        ((FINAL, ""),),
        ("no rank set a final weight for layer 0", "call set_final_weight(0, ...)"),
    ),
    Mistake(
        "ddp",
        "no all-reduce",
        ((REDUCE, ""),),
        ("update(layer=0)", "covers only batch 0 of 4", "'+' or an all-reduce first"),
    ),
    Mistake(
        "ddp",
        "the sum is thrown away",
        (("grad_weights[layer] = await model.all", "await model.all"),),
        ("update(layer=0)", "covers only batch 0 of 4"),
    ),
    Mistake(
        "ddp",
        "no await",
        (("await model.allreduce", "model.allreduce"),),
        ("grad_weights[0] = ...", "was not awaited", "write 'await' before the call"),
    ),
    Mistake(
        "ddp",
        "every rank takes every batch",
        (("[model.rank])", "range(model.BATCHES))"),),
        ("allreduce(layer=0)", "each contribute every batch", "reduce it once"),
    ),
    Mistake(
        "ddp",
        "one rank takes part",
        ((AWAITED, f"        if not model.rank:\n    {AWAITED}"),),
        ("rank 1", "update(layer=0)", "covers only batch 1 of 4"),
    ),
    Mistake(
        "zero1",
        "a full weight is updated",
        (("        weights[layer] = weights[layer].shard(model.rank, model.RANKS)\n", ""),),
        ("the weight is unsharded", "update shard 0 of the weight: `weights[layer].shard(0, 4)`"),
    ),
    Mistake(
        "zero1",
        "no gather",
        (("        weights[layer] = await model.allgather(weights[layer], layer)\n", ""),),
        ("Gather every weight with `allgather` after its update",),
    ),
    Mistake(
        "zero1",
        "a full sum of which a shard is used",
        (("await model.scatterreduce", "await model.allreduce"),),
        ("all-reduces 4 gradients and keeps a shard of each", "`scatterreduce` sends half"),
    ),
    Mistake("zero1", "no sum", ((SCATTER, ""),), ("covers only batch 0 of 4",)),
    Mistake(
        "zero1",
        "the state stays whole",
        (
            ("        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)\n", ""),
            ("        weights[layer] = weights[layer].shard(model.rank, model.RANKS)\n", ""),
        ),
        ("the gradient is shard 0 of 4, but the weight is unsharded", "a gradient that covers all of its shards"),
    ),
    Mistake(
        "fsdp",
        "no gather",
        (
            (
                'weights["full"] = await model.allgather(weights[layer], layer)\n        act',
                'weights["full"] = weights[layer]\n        act',
            ),
        ),
        ("forward(layer=0)", "only shard 0 of 4", "allgather it first"),
    ),
    Mistake(
        "fsdp",
        "a full sum of which a shard is used",
        (("await model.scatterreduce", "await model.allreduce"),),
        ("all-reduces 6 gradients and keeps a shard of each", "`scatterreduce` sends half"),
    ),
    Mistake("fsdp", "no sum", ((SCATTER, ""),), ("covers only batch 0 of 4",)),
    Mistake(
        "fsdp",
        "the gathered weights stay",
        (
            ('weights["full"]', 'weights[layer, "full"]'),
            ('        del weights[layer, "full"]\n', ""),
            (', weights[layer, "full"]\n    del', "\n    del"),
        ),
        ("holds most at t=",),
    ),
    Mistake(
        "fsdp",
        "activations stay",
        (("        del activations[layer], grad_activations[layer + 1], ", "        del "),),
        ("not read again", "activations of layers"),
    ),
]
