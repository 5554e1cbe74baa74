"""First mistakes with recomputation and with the layers split."""

from __future__ import annotations

from tests.support.mistakes import Mistake

SEND_BACK = "    if not first:\n        await model.pass_to(model.rank - 1, grad_activations[stage[0]])\n"
SUM = "grad_weights[layer] + grad if layer in grad_weights else grad"
FINAL = "        model.set_final_weight(layer, weights[layer])\n"

PIPELINES = [
    Mistake(
        "checkpoint",
        "nothing is deleted",
        (("            del activations[layer]\n", "            pass\n"),),
        ("all of it is still needed", "9 activations of layers 0-8", "compute them again in backward"),
    ),
    Mistake(
        "checkpoint",
        "nothing is computed again",
        (("        if layer not in activations:", "        if False:"),),
        ("activations[5]", "nothing is stored under this key"),
    ),
    Mistake(
        "pipeline",
        "no send forward",
        (("        await model.pass_to(model.rank + 1, activations[stage[-1] + 1])\n", ""),),
        ("nobody can move", "rank 0 waits in receive()", "each receive needs a pass_to to that rank"),
    ),
    Mistake(
        "pipeline",
        "the send after the updates",
        ((SEND_BACK, ""), (FINAL, FINAL + SEND_BACK)),
        ("sends after the update on line", "other ranks wait: send first"),
    ),
    Mistake(
        "pipeline",
        "a send to nobody",
        (("model.rank + 1, act", "model.rank - 1, act"),),
        ("pass_to(-1)", "rank -1 does not exist", "there are ranks 0 to 3"),
    ),
    Mistake(
        "gpipe", "keeps the last gradient only", ((SUM, "grad"),), ("covers only batch 3 of 4", "first add batches 0-2")
    ),
    Mistake(
        "gpipe",
        "keeps the activations",
        (("            del activations[layer, batch], grad_activations[layer + 1, batch]\n", ""),),
        ("3,014,656 elements of it are never read again", "Delete them before that"),
    ),
    Mistake(
        "checkpoint",
        "everything is computed again for each layer",
        (
            ("if layer == 0 or (layer < last and layer % EVERY)", "if True"),
            ("start = layer // EVERY * EVERY", "start = 0"),
            (
                "        del activations[layer], grad_activations[layer + 1]\n",
                "        for each in list(activations):\n            del activations[each]\n"
                "        del grad_activations[layer + 1]\n",
            ),
        ),
        ("takes 58 timesteps", "are never read again: 8 activations of layers 0-7"),
    ),
    Mistake(
        "checkpoint",
        "begins again at the wrong layer",
        (("for again in range(start, layer)", "for again in range(start + 1, layer)"),),
        ("activations[4]", "nothing is stored under this key; activations has the keys 3"),
    ),
    Mistake(
        "checkpoint",
        "the input is not taken again",
        (
            (
                "                activations[0] = model.get_activation(range(model.BATCHES))\n            for",
                "                pass\n            for",
            ),
        ),
        ("activations[0]", "nothing is stored under this key"),
    ),
    Mistake(
        "pipeline",
        "every rank has every layer",
        (("range(model.rank * depth, (model.rank + 1) * depth)", "range(model.LAYERS)"),),
        ("forward(layer=0)", "the activation after the last layer", "pass the input activation of layer 0"),
    ),
    Mistake(
        "pipeline",
        "a loss on every rank",
        (("    if last:\n        grad", "    if True:\n        grad"),),
        ("rank 0", "loss needs the output of the last layer", "call forward first"),
    ),
    Mistake(
        "pipeline",
        "no await",
        (("await model.pass_to(model.rank + 1", "model.pass_to(model.rank + 1"),),
        ("was called without await, so it never ran", "write 'await model.pass_to(...)'"),
    ),
    Mistake(
        "gpipe",
        "sends when all are done",
        (
            (
                "        if not last:\n"
                "            await model.pass_to(model.rank + 1, activations[stage[-1] + 1, batch])\n",
                "",
            ),
            (
                "    for batch in range(model.BATCHES):\n        if last",
                "    for batch in range(0 if last else model.BATCHES):\n"
                "        await model.pass_to(model.rank + 1, activations[stage[-1] + 1, batch])\n"
                "    for batch in range(model.BATCHES):\n        if last",
            ),
        ),
        ("sends after the forward on line", "other ranks wait: send first"),
    ),
    Mistake(
        "gpipe",
        "an update for each microbatch",
        (
            (
                "            grad = grad_weights.pop((layer, batch))\n"
                "            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad\n",
                "            weights[layer], opt_states[layer] = model.update(\n"
                "                layer, grad_weights[layer, batch], weights[layer], opt_states[layer])\n",
            ),
        ),
        ("update(layer=6)", "covers only batch 0 of 4", "first add batches 1-3"),
    ),
    Mistake(
        "gpipe",
        "receives from the next rank",
        (("else await model.receive()\n        for", "else await model.receive(model.rank + 1)\n        for"),),
        ("rank 3", "rank 4 does not exist; there are ranks 0 to 3"),
    ),
    Mistake(
        "one_f_one_b",
        "every forward first",
        (("ahead = min(last - me, model.BATCHES)", "ahead = model.BATCHES"),),
        ("activations of 7 microbatches", "go backward with one before you go forward with the next"),
    ),
    Mistake(
        "one_f_one_b",
        "no warm-up",
        (("ahead = min(last - me, model.BATCHES)", "ahead = 0"),),
        ("before the forward on line 13, which needs nothing from it: do it first",),
    ),
    Mistake(
        "one_f_one_b",
        "one microbatch too many",
        (("min(last - me, model", "min(last - me + 1, model"),),
        ("needs 1,572,864 elements", "activations of 5 microbatches"),
    ),
    Mistake(
        "one_f_one_b",
        "keeps the activations",
        (("activations.pop(batch), grad", "activations[batch], grad"),),
        ("524,288 elements of it are never read again", "4 activations of layer 0, batches 0-3"),
    ),
    Mistake(
        "one_f_one_b",
        "keeps the last gradient only",
        (("grad_weights[me] + grad if me in grad_weights else grad", "grad"),),
        ("covers only batch 7 of 8", "first add batches 0-6, with '+'"),
    ),
    Mistake(
        "zb_h1",
        "weight halves at once",
        (("late = me", "late = 0"),),
        ("waits for 7 `backward_weight`", "which only the update needs", "for when a rank waits"),
    ),
    Mistake(
        "zb_h1",
        "weight halves at the end",
        (("late = me", "late = model.BATCHES"),),
        ("7 weight halves are left to compute", "each frees an activation"),
    ),
    Mistake(
        "zb_h1",
        "a full backward, and a half",
        (("grad_in = model.backward_input(", "_, grad_in = model.backward("),),
        ("computes 8 weight gradients that nobody reads: use `backward_input` there",),
    ),
    Mistake(
        "zb_h1",
        "deletes what the weight half needs",
        (
            (
                "activations[batch], grad_activations[batch], weights[me])",
                "activations.pop(batch), grad_activations.pop(batch), weights[me])",
            ),
        ),
        ("activations[0]", "nothing is stored under this key; activations has the keys 1, 2, 3"),
    ),
    Mistake(
        "zb_h1",
        "leaves weight halves out",
        (
            (
                "    for batch in range(max(0, model.BATCHES - late), model.BATCHES):\n"
                "        backward_weight(batch)\n",
                "",
            ),
        ),
        ("covers only batches 0-4 of 8", "first add batches 5-7"),
    ),
]
