"""What players get wrong in the pipelines and in splitting a layer: refused in words that help, or over a target."""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.support.mistakes import Mistake, outcome_of

ALL_GATHERED = '        weights["full"] = await model.allgather(weights[layer], layer, group="dp")\n'
LOOP = "        for batch in my_batches:\n"
OWN_SHARD = "model.load_weights(layer, model.rank, model.RANKS)"

KEYS_ONCE = (
    'activations["keys", layer] = model.keys(layer, activations[layer], weights[layer])',
    'activations.setdefault(("keys", layer), model.keys(layer, activations[layer], weights[layer]))',
)
AND_THERE = """\
        activations["out"] = model.attend(
            layer, activations["queries", layer], [activations["there", layer]], activations["out"]
        )
"""

MISTAKES = [
    Mistake(
        "one_f_one_b",
        "all forwards first, as in GPipe",
        (("min(last - me, model.BATCHES)", "model.BATCHES"),),
        figures=(33, 1_769_472),
    ),
    Mistake(
        "one_f_one_b",
        "one batch at a time",
        (("min(last - me, model.BATCHES)", "0"),),
        figures=(96, 1_048_576),
    ),
    Mistake(
        "one_f_one_b",
        "as many forwards ahead as there are ranks before, not after",
        (("min(last - me, model.BATCHES)", "me"),),
        says=("rank 0, t=1, receive(1)", "rank 1 waits in receive(0)", "nobody can move"),
    ),
    Mistake(
        "one_f_one_b",
        "only the last gradient is kept",
        (("grad_weights[me] + grad if me in grad_weights else grad", "grad"),),
        says=("update(layer=3)", "covers only batch 7 of 8", "first add batches 0-6"),
    ),
    Mistake(
        "interleaved",
        "both layers of a rank one after the other, as in gpipe",
        (("range(me, model.LAYERS, ranks)", "range(2 * me, 2 * me + 2)"),),
        says=("rank 1 waits in receive(0", "nobody can move"),
    ),
    Mistake(
        "interleaved",
        "no forwards ahead for the second chunk",
        ((" + model.LAYERS - ranks", ""),),
        says=("rank 3, t=4, activations[(7, 0)]", "nothing is stored under this key"),
    ),
    Mistake(
        "interleaved",
        "backward in the order of forward",
        (("for layer in reversed(my_layers) for batch", "for layer in my_layers for batch"),),
        says=("rank 3 waits in receive(0, tag=24)", "nobody can move"),
    ),
    Mistake(
        "breadth_first",
        "a gather for each batch",
        (
            (
                ALL_GATHERED + LOOP + "            await forward",
                LOOP + "    " + ALL_GATHERED + "            await forward",
            ),
        ),
        figures=(38, 5_144_576),
    ),
    Mistake(
        "breadth_first",
        "all ranks in one gather",
        ((', group="dp"', ""),),
        says=("rank 0 calls allgather(layer=0)", "rank 1 calls allgather(layer=1)", "same order"),
    ),
    Mistake(
        "breadth_first",
        "every rank takes all batches",
        (("range(replica, model.BATCHES, replicas)", "range(model.BATCHES)"),),
        says=("scatterreduce(layer=3)", "ranks 1, 3 each contribute every batch"),
    ),
    Mistake(
        "breadth_first",
        "full weights are gathered",
        (("model.load_weights(layer, replica, replicas)", "model.load_weights(layer)"),),
        says=("allgather(layer=0)", "shard 0 is in both rank 0 and rank 2", "gather each shard once"),
    ),
    Mistake(
        "zb_h1",
        "weight gradients right after the input's",
        (("late = me", "late = 0"),),
        figures=(30, 1_441_792),
    ),
    Mistake(
        "zb_h1",
        "weight gradients twice as late",
        (("late = me", "late = 2 * me"),),
        figures=(30, 1_884_160),
    ),
    Mistake(
        "zb_h1",
        "the activation is dropped after the first half",
        (("activations[batch], grad_activations[batch], w", "activations.pop(batch), grad_activations[batch], w"),),
        says=("rank 0, t=8, activations[0]", "nothing is stored under this key"),
    ),
    Mistake(
        "zb_h1",
        "the last weight gradients are forgotten",
        (("range(max(0, model.BATCHES - late), model.BATCHES)", "range(0)"),),
        says=("rank 3, t=24, update(layer=3)", "covers only batches 0-4 of 8", "first add batches 5-7"),
    ),
    Mistake(
        "zb_h2",
        "the numbers of zb_h1 in a loop",
        (("2 * (last - me)", "last - me"), ("2 * me", "me")),
        figures=(54, 1_466_368),
    ),
    Mistake(
        "zb_h2",
        "twice as many forwards ahead, but weight gradients as in zb_h1",
        (("2 * me", "me"),),
        figures=(54, 1_835_008),
    ),
    Mistake(
        "zb_h2",
        "batches of the first step in both",
        (("[batch], step)", "[batch])"),),
        says=("rank 0, t=24, forward(layer=0)", "the weight is at step 1", "activation is of step 0"),
    ),
    Mistake(
        "zb_h2",
        "gradients of both steps in one sum",
        (("grad_weights.pop(me)", "grad_weights[me]"),),
        says=("rank 0", "values that differ in step"),
    ),
    Mistake(
        "zb_v",
        "a message to itself at the turn",
        (("if owner(layer) == me:", "if False:"),),
        says=("rank 3, t=4, pass_to(3", "cannot send to itself", "store the value"),
    ),
    Mistake(
        "zb_v",
        "a message from itself at the turn",
        (("if owner(source) != me:", "if True:"),),
        says=("rank 3 waits in receive(3", "for rank 3", "nobody can move"),
    ),
    Mistake(
        "zb_v",
        "as few forwards ahead as in 1F1B",
        (("2 * (ranks - me) - 1", "ranks - me"),),
        figures=(78, 2_768_896),
    ),
    Mistake(
        "zb_v",
        "layers placed as in interleaved",
        (("model.LAYERS - 1 - me", "me + ranks"),),
        says=("rank 2, t=5, activations[(6, 0)]", "nothing is stored under this key"),
    ),
    Mistake(
        "tensor_parallel",
        "parts go on without a sum",
        (("await model.allreduce(part, layer + 1)", "part"),),
        says=("forward(layer=1)", "part 0 of 4 of a sum", "allreduce or scatterreduce"),
    ),
    Mistake(
        "tensor_parallel",
        "weight gradients are summed, as in ddp",
        (
            (
                "        weights[layer], opt_states[layer] = model.update",
                "        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)\n"
                "        weights[layer], opt_states[layer] = model.update",
            ),
        ),
        says=("allreduce(layer=3)", "shard 0 of 4", "shard 1 of 4"),
    ),
    Mistake(
        "tensor_parallel",
        "every rank loads the first shard",
        ((OWN_SHARD, "model.load_weights(layer, 0, model.RANKS)"),),
        says=("allreduce(layer=1)", "part 0 is in both rank 0 and rank 1"),
    ),
    Mistake(
        "sequence_parallel",
        "a forward of a share of the tokens",
        (("return await model.allgather(activations[layer], layer)", "return activations[layer]"),),
        says=("forward(layer=1)", "share 0 of 4 of the tokens", "allgather them first"),
    ),
    Mistake(
        "sequence_parallel",
        "a backward with the gradient of a share",
        (("await model.allgather(grad_activations.pop(layer), layer)", "grad_activations.pop(layer)"),),
        says=("backward(layer=7)", "share 0 of 4 of the tokens", "allgather them first"),
    ),
    Mistake(
        "sequence_parallel",
        "what was gathered is kept for backward",
        (
            (
                "        return await model.allgather(activations[layer], layer)",
                "        if ('full', layer) not in activations:\n"
                "            activations['full', layer] = await model.allgather(activations[layer], layer)\n"
                "        return activations['full', layer]",
            ),
        ),
        figures=(12, 11_272_192),
    ),
    Mistake(
        "expert_parallel",
        "a dispatch waits for the collect before it",
        (
            ("        there[batch] = model.dispatch(back[batch], layer)", "        there[batch] = layer"),
            (
                "            await back.pop(batch)\n",
                "            there[batch] = model.dispatch(await back.pop(batch), there[batch])\n",
            ),
        ),
        figures=(13, 2_097_152),
    ),
    Mistake(
        "expert_parallel",
        "the gradient of the loss stays at home",
        (
            (
                "there[batch] = model.dispatch(model.loss(await back.pop(batch)), last)",
                "grad_activations[batch] = model.loss(await back.pop(batch))",
            ),
            (
                "            grad_activations[batch] = await arrive(batch)",
                "            if layer < last:\n                grad_activations[batch] = await arrive(batch)",
            ),
        ),
        says=("backward(layer=1)", "batches 0-3 of 8", "its gradient covers batch 0"),
    ),
    Mistake(
        "expert_parallel",
        "every rank has the first expert",
        ((OWN_SHARD, "model.load_weights(layer, 0, model.RANKS)"),),
        says=("rank 1, t=0.5, forward(layer=0)", "tokens are for expert 1 of 4", "weight is expert 0"),
    ),
    Mistake(
        "expert_parallel",
        "a handle is stored in place of its value",
        (("activations[layer, batch] = await arrive(batch)", "activations[layer, batch] = there.pop(batch)"),),
        says=("dispatch(layer=0)", "still pending", "await it first"),
    ),
    Mistake(
        "packing",
        "dealt by tokens",
        (('ticks["attend"] * lengths[batch] ** 2', "0"),),
        figures=(73.5, 8_388_608),
    ),
    Mistake(
        "packing",
        "no rank knows the gradients of the others",
        (
            ("model.allreduce(grad_weights.pop(layer), layer)", "grad_weights[layer]"),
            ("await pending.pop", "pending.pop"),
        ),
        says=("rank 0", "update(layer=0)", "first add batches"),
    ),
    Mistake(
        "packing",
        "the keys of the rank's first sequence",
        (('[activations.pop(("keys", layer))]', '[activations["keys", layer]]'), KEYS_ONCE),
        says=("attend(layer=0)", "these keys are of layer 0 and batch"),
    ),
    Mistake("frozen_encoder", "equal counts", (("(6, 3, 2, 2)", "(4, 3, 3, 3)"),), figures=(84, 3_276_800)),
    Mistake(
        "frozen_encoder",
        "frozen layers are trained too",
        (("if layer not in frozen]", "]"),),
        says=("backward_weight(layer=6)", "layer 6 is frozen"),
    ),
    Mistake(
        "frozen_encoder",
        "the gradient goes on below the first trained layer",
        (("            if layer > first:", "            if layer:"),),
        says=("backward_input(layer=7)", "no layer below 7 is trained"),
    ),
    Mistake(
        "whole_update", "owners in turn", (("loads.index(min(loads))", "layer % ranks"),), figures=(29.7, 7_208_960)
    ),
    Mistake(
        "whole_update",
        "each rank updates a shard",
        (
            (
                "model.reduce(grad_weights[layer], layer, to=owner[layer])",
                "model.scatterreduce(grad_weights[layer], layer)",
            ),
            ("weights.pop(layer), None", "weights.pop(layer).shard(model.rank, model.RANKS), None"),
        ),
        says=("update(layer=", "shard", "needs a full matrix"),
    ),
    Mistake(
        "whole_update",
        "the owner's own gradient",
        (
            ("            grad_weights[layer] = total\n", "            pass\n"),
            ("        del grad_weights[layer]\n", ""),
        ),
        says=("update(layer=", "first add batches"),
    ),
    Mistake(
        "two_dimensions",
        "heads between the machines, blocks within",
        (
            ('group="gpu"', 'group="machine"'),
            ('model.index("machine"), model.index("gpu")', 'model.index("gpu"), model.index("machine")'),
            ('model.axis("machine")', 'model.axis("gpu")'),
        ),
        figures=(26, 4_718_592),
    ),
    Mistake(
        "two_dimensions",
        "the other machine's keys are left out",
        ((AND_THERE, ""),),
        says=("tokens(layer=1)", "only what is summed over all keys"),
    ),
    Mistake(
        "two_dimensions",
        "places in the order of ranks",
        (("(machine, 3 - machine)[place]", "(3 - machine, machine)[place]"),),
        says=("heads(layer=0)", "its part is share 0 of 2 of the tokens"),
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_refused_in_words_that_help_or_misses_a_target(mistake: Mistake) -> None:
    refusal, report = outcome_of(mistake)
    if mistake.figures is None:
        assert [part for part in mistake.says if part not in refusal] == [], refusal
        return
    assert report is not None
    assert (refusal, report.status, report.stars) == ("", "over_target", 1)
    assert (report.timesteps, report.peak.memory) == mistake.figures


def test_each_puzzle_has_three_mistakes_of_which_one_is_refused() -> None:
    for slug in {mistake.slug for mistake in MISTAKES}:
        assert slug in PUZZLES
        mine = [mistake for mistake in MISTAKES if mistake.slug == slug]
        assert len(mine) >= 3
        assert any(mistake.says for mistake in mine)
