"""streaming_diloco: replicas train alone, and the layers take turns in averaging what they have learned."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import LOCAL_SGD
from puzzles.catalog.papers import DILOCO, STREAMING_DILOCO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="One layer at a time",
    goal=Goal(
        "streaming_diloco",
        Size(layers=4, batches=4, ranks=4),
        time=127,
        memory=5_500_000,
        traffic=3_100_000,
        records=(Record(116.5, 5_373_952, "solutions/streaming_diloco.py", LOCAL_SGD, 3_145_728),),
        setting=Setting("outer_steps", steps=8, task="outer", outer=4, late=1),
        family=LOCAL_SGD,
        steady=True,
    ),
    other_sizes=(Size(2, 2, 2), Size(3, 4, 4)),
    statement="""\
Four ranks are far apart: an all-reduce of one layer takes 8 steps of the clock, and a training step takes 14. There are
eight training steps. In `local_sgd` the replicas average their weights. Here an outer optimizer averages what they
have learned (DiLoCo).

Each layer has an agreed weight, which is the same on all ranks, and each rank trains its own copy of it. In every round
of at most 4 training steps:

- `change = model.delta(layer, agreed, copy)` is how far the copy has moved from the agreed weight;
- `await model.allreduce(change, layer)` adds up the changes of all copies;
- `agreed, state = model.outer_update(layer, agreed, change, state)` makes the next agreed weight, with the outer
  optimizer's state, which `load_weights(layer, outer=True)` returns third;
- `copy = model.merge(layer, copy, agreed)` lets the copy go on from a mixture of itself and the agreed weight.

A copy may be merged one training step late: it may have made one more update than the copies in the average. The
all-reduce overlaps with computation. Layers need not take part at the same time. A replica computes a training step
with one weight in each layer, forward and backward.

At the end, declare each layer's last agreed weight with `set_final_weight`, and the rank's own copy after all eight
steps with `set_final_copy`. If all layers are averaged together after every fourth step, and the ranks wait, this takes
179.5 timesteps. Take at most 127, and send no more.
""",
    starter='''\
async def streaming_diloco(model: Model) -> Model:
    """Training in replicas, whose layers are averaged one after the other."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    setting = model.dist.setting
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer], opt_states["outer", layer] = model.load_weights(layer, outer=True)
        weights["agreed", layer] = weights[layer]

    # ----- your code -----
    # In each of setting.steps steps forward, loss, backward and update, on this rank's batch.
    # Each layer's change is averaged at least every setting.outer steps.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights["agreed", layer])
        model.set_final_copy(layer, weights[layer])
    return model
''',
    calls=(
        *("get_activation", "forward", "loss", "backward", "update"),
        *("delta", "allreduce", "outer_update", "merge", "set_final_copy"),
    ),
    parameters=("step", "outer"),
    hints=(
        "Begin with the training loop of `local_sgd`, without its averages. Then average all layers after steps 4 and "
        "8: `delta`, `allreduce`, `outer_update`, `merge`. That is DiLoCo: 32 steps of waiting after each round.",
        "An all-reduce of one layer ends within the next training step. So begin the all-reduce of another layer in "
        "each step: with four layers and rounds of four steps, each layer has its turn every fourth step. Keep the "
        "handle in a dictionary, and compute on.",
        "A pending all-reduce holds two values as large as a weight. Begin it in the backward, where activations are "
        "deleted, not in the forward, where they pile up. Await it in the next step, before the forward of its layer: "
        "then `outer_update`, `merge`, and go on with the merged copy.",
        "For the third star: after the update of the last layer, the other layers still have the copies that the step "
        "began with, and `delta` takes these too. So begin there for every layer: with the last layer in the first "
        "step, then with the layer before it, and so on. The last all-reduce then overlaps with the last backward.",
    ),
    concept="""\
All schedules with two averages of each layer send the same: 12 weights from each rank. What differs is when they send.
DiLoCo sends everything at once, and waits. One layer in each step needs a link that is four times slower, and no rank
waits for it. The price is an average that is late by a step, and a copy that is a mixture of its own weight and the
agreed one.
""",
    in_practice="""\
DiLoCo (Douillard et al. 2023) trains language models on clusters that are far apart, with hundreds of inner steps in a
round and SGD with Nesterov momentum as outer optimizer. Streaming DiLoCo (Douillard et al. 2025) averages one fragment
of the layers at a time, overlaps it with computation, merges late with a mixing factor, and sends 4 bits for each
number. Its fragments are several layers, spread over the depth of the model.
""",
    sources=(DILOCO, STREAMING_DILOCO),
    praise="Each layer's average was sent while the ranks computed.",
)
