"""First mistakes with overlap, and with layers, sequences, experts and several axes split."""

from __future__ import annotations

from tests.support.mistakes import Mistake

GATHER = "        if layer < top:\n            gather = model.allgather(weights[layer + 1], layer + 1)\n"
FORWARD = """\
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights["full"])
        del inp
"""

OVERLAP = [
    Mistake(
        "ddp_overlap",
        "one bucket for all",
        (("len(bucket) == 2 or layer == 0", "layer == 0"),),
        ("calls `allreduce` when the last of its 6 values is there", "call it sooner, with fewer values"),
    ),
    Mistake(
        "ddp_overlap",
        "a bucket for each layer",
        (("len(bucket) == 2", "len(bucket) == 1"),),
        ("takes 15.4 timesteps", "are never read again: activation gradient of the model's input"),
    ),
    Mistake(
        "ddp_overlap",
        "a call is awaited twice",
        (
            (
                "sums.append((bucket, model.allreduce([grad_weights.pop(i) for i in bucket], bucket)))",
                "call = model.allreduce([grad_weights.pop(i) for i in bucket], bucket)\n"
                "            await call\n            sums.append((bucket, call))",
            ),
        ),
        ("was already awaited on line", "keep what 'await' returned"),
    ),
    Mistake(
        "ddp_overlap",
        "never awaits the sums",
        (("grad_weights.update(zip(bucket, await handle))", "pass"), ("grad_weights.pop(i)", "grad_weights[i]")),
        ("update(layer=5)", "covers only batch 0 of 4"),
    ),
    Mistake(
        "ddp_overlap",
        "calls after the last backward",
        (
            (
                "        if len(bucket) == 2 or layer == 0:\n"
                "            sums.append((bucket, model.allreduce([grad_weights.pop(i) for i in bucket], bucket)))\n"
                "            bucket = []\n",
                "",
            ),
            (
                "    del grad_activations[0]\n",
                "    del grad_activations[0]\n    for i in range(0, model.LAYERS, 2):\n"
                "        values = [grad_weights.pop(layer) for layer in (i, i + 1)]\n"
                "        sums.append(([i, i + 1], model.allreduce(values, [i, i + 1])))\n",
            ),
        ),
        ("calls `allreduce` after the backward on line", "which does not need it", "call it first"),
    ),
    Mistake(
        "fsdp_prefetch",
        "the gather after the forward",
        ((GATHER + FORWARD, FORWARD + GATHER),),
        ("calls `allgather` after the forward on line", "which does not need it", "call it first"),
    ),
    Mistake(
        "fsdp_prefetch",
        "a full sum of which a shard is used",
        (("model.scatterreduce(", "model.allreduce("),),
        ("all-reduces 6 gradients and keeps a shard of each", "`scatterreduce` sends half"),
    ),
    Mistake(
        "fsdp_prefetch",
        "no await",
        (("= await gather\n        if layer <", "= gather\n        if layer <"),),
        ("weights holds weights only", "allgather(layer=0) on line 16, which is still pending; await it first"),
    ),
    Mistake(
        "fsdp_prefetch",
        "a call is awaited twice",
        (('(grad_weights["full"], layer)', '(grad_weights["full"], layer)\n        await scatter'),),
        ("was already awaited on line", "keep what 'await' returned"),
    ),
    Mistake(
        "fsdp_prefetch",
        "the gathered weights stay",
        (
            ('weights["full"]', 'weights[layer, "full"]'),
            ('weights[layer, "full"] = await gather\n    del', 'weights[layer - 1, "full"] = await gather\n    del'),
            (', weights[layer, "full"]\n        if scatter', "\n        if scatter"),
        ),
        ("are never read again: 5 weights of layers 0-3, 5",),
    ),
]

SPLITTING = [
    Mistake(
        "tensor_parallel",
        "no sum forward",
        (("await model.allreduce(part, layer + 1)", "part"),),
        ("forward(layer=1)", "part 0 of 4 of a sum", "allreduce or scatterreduce"),
    ),
    Mistake(
        "tensor_parallel",
        "no sum backward",
        (("await model.allreduce(part, layer - 1)", "part"),),
        ("backward(layer=2)", "part 0 of 4 of a sum", "allreduce or scatterreduce"),
    ),
    Mistake(
        "tensor_parallel",
        "every rank has all of each weight",
        (("layer, model.rank, model.RANKS)", "layer)"),),
        ("allreduce(layer=1)", "already complete", "load a shard of the weight on each rank"),
    ),
    Mistake(
        "tensor_parallel",
        "every rank takes its own batch",
        (("range(model.BATCHES)", "[model.rank]"),),
        ("rank 1", "batch 1 does not exist; only batch 0 exists"),
    ),
    Mistake(
        "tensor_parallel",
        "a sum that nobody reads",
        (("        if layer:  # nobody reads the gradient of the model's input\n", "        if True:\n"),),
        ("all-reduces the gradient of the model's input, which nobody reads: leave it out (196,608 elements)",),
    ),
    Mistake(
        "sequence_parallel",
        "no gather before backward",
        (
            (
                "        inp = await full_input(layer)\n        activations.pop(layer, None)\n",
                "        inp = activations.pop(layer, None)\n",
            ),
        ),
        ("backward(layer=7)", "only share 0 of 4 of the tokens", "allgather them first"),
    ),
    Mistake(
        "sequence_parallel",
        "no gather of the gradient",
        (("await model.allgather(grad_activations.pop(layer), layer)", "grad_activations.pop(layer)"),),
        ("backward(layer=7)", "only share 0 of 4 of the tokens", "allgather them first"),
    ),
    Mistake(
        "sequence_parallel",
        "tensor parallelism",
        (
            ('scatterreduce(activations.pop("part")', 'allreduce(activations.pop("part")'),
            ("return await model.allgather(activations[layer], layer)", "return activations[layer]"),
            ("await model.allgather(grad_activations.pop(layer), layer)", "grad_activations.pop(layer)"),
            ("await model.scatterreduce(grad_activations", "await model.allreduce(grad_activations"),
        ),
        ("7 activations of layers 1-7", "Keep only this rank's share of the tokens"),
    ),
    Mistake(
        "sequence_parallel",
        "keeps what it gathered",
        (
            (
                '        activations["part"] = model.forward(layer, await full_input(layer), weights[layer])',
                '        activations["in", layer] = await full_input(layer)\n'
                '        activations["part"] = model.forward(layer, activations["in", layer], weights[layer])',
            ),
            ("        inp = await full_input(layer)", '        inp = activations.pop(("in", layer))'),
        ),
        ("needs 12,320,768 elements", "never read again: 7 activations of layers 1-7"),
    ),
    Mistake(
        "sequence_parallel",
        "no sum",
        (('await model.scatterreduce(activations.pop("part"), layer + 1)', 'activations.pop("part")'),),
        ("allgather(layer=1)", "differ in parts", "scatterreduce leaves a share of their sum on each rank"),
    ),
    Mistake(
        "expert_parallel",
        "every rank has all of each weight",
        (("layer, model.rank, model.RANKS)", "layer)"),),
        ("forward(layer=0)", "the weight is expert 0 of 1", "use this rank's own expert"),
    ),
    Mistake(
        "expert_parallel",
        "no collect",
        (
            (
                "        back[batch] = model.collect(value, layer, [batch])\n"
                "        there[batch] = model.dispatch(back[batch], layer)",
                "        there[batch] = model.dispatch(value, layer)",
            ),
        ),
        ("dispatch(layer=1)", "share 0 of 4 of the tokens", "dispatch takes all of them"),
    ),
    Mistake(
        "expert_parallel",
        "a sum of the experts' gradients",
        (
            (
                "        weights[layer], opt_states[layer] = model.update(",
                "        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)\n"
                "        weights[layer], opt_states[layer] = model.update(",
            ),
        ),
        ("allreduce(layer=1)", "differ in shards", "a shard that only one rank has needs no sum"),
    ),
    Mistake(
        "expert_parallel",
        "every rank takes every batch",
        (("range(model.rank, model.BATCHES, model.RANKS)", "range(model.BATCHES)"),),
        ("batch 0 is in both rank 0 and rank 1", "dispatch each batch once"),
    ),
    Mistake(
        "expert_parallel",
        "waits for each exchange",
        (
            (
                "                travel(out, layer + 1, batch)\n",
                "                travel(out, layer + 1, batch)\n"
                '                activations["next", batch] = await arrive(batch)\n',
            ),
            (
                "= await arrive(batch)\n            out",
                '= activations.pop(("next", batch)) if layer else await arrive(batch)\n            out',
            ),
        ),
        ("calls `collect`, and nothing is computed before line", "do work in between that does not need it"),
    ),
    Mistake(
        "three_d",
        "no group for the parts",
        ((', group="tp")\n            del', ")\n            del"),),
        ("nobody can move", "or name a group: allreduce(layer=1) on line", "has none"),
    ),
    Mistake(
        "three_d",
        "no group for the gradients",
        ((', group="dp")', ")"),),
        ("rank 0 calls allreduce(layer=0)", "rank 2 calls allreduce(layer=2)", "or name a group"),
    ),
    Mistake(
        "three_d",
        "receives from the rank before",
        (("pipeline[stage - 1])\n        )", "model.rank - 1)\n        )"),),
        ("nobody can move", "rank 3 waits in receive(2)", "they wait in a circle"),
    ),
    Mistake(
        "three_d",
        "no sum over the replicas",
        (('        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="dp")\n', ""),),
        ("update(layer=2)", "covers only batches 0, 1 of 4", "all-reduce"),
    ),
    Mistake(
        "three_d",
        "the same batches on each replica",
        (('range(model.index("dp") * microbatches, (model.index("dp") + 1) * microbatches)', "range(microbatches)"),),
        ("allreduce(layer=2)", "batch 0 is in both rank 2 and rank 6", "sum each batch once"),
    ),
]
