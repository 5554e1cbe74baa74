"""pipeline: each rank owns consecutive layers and passes all batches on together."""

from lib import Goal, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import GPIPE, PIPEDREAM
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Pipeline parallelism",
    goal=Goal(
        "pipeline",
        Size(layers=8, batches=4, ranks=4),
        time=66,
        memory=3_300_000,
        traffic=2_000_000,
        records=RECORDS[8, 4, 4],
        family=PIPELINE,
        decides="star",
    ),
    other_sizes=(Size(6, 2, 3), Size(4, 6, 2)),
    statement="""\
So far, ranks exchanged weights or gradients. Now each rank owns a *stage*: an equal share of consecutive layers,
with their optimizer states. Their weights are never sent; activations are. Rank 0 takes all batches through its
layers, and sends the result to rank 1 with `await model.pass_to(1, activation)`. Rank 1 receives it with
`await model.receive()`. The last rank computes the loss, and the gradient is sent back the same way.

After backward, each rank has everything it needs to update its own layers. No collective is needed.
""",
    starter='''\
async def pipeline(model: Model) -> Model:
    """Pipeline parallelism: a stage of layers on each rank, all batches together."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Receive, forward, pass on; receive, backward, pass back; update your layers.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    hints=(
        "Write down what the first, a middle and the last rank receive and pass on. Only the first and the "
        "last differ from the others.",
        "Rank 0 gets its input with `model.get_activation(range(model.BATCHES))`, all others with "
        "`await model.receive()`. The last rank gets its gradient from `model.loss(...)`, all others with "
        "`await model.receive()`.",
        "Number the activations as before, by the layer that reads them. A stage starts with "
        "`activations[my_layers[0]]` and ends with `activations[my_layers[-1] + 1]`, which it passes on.",
        "Go forward through `my_layers`; if not last, `await model.pass_to(model.rank + 1, ...)`. Then get the "
        "gradient and go backward through `reversed(my_layers)`, with the same deletions as before; if not first, "
        "`await model.pass_to(model.rank - 1, grad_activations[my_layers[0]])`. Then update.",
    ),
    concept="""\
Dividing a model by layers makes each rank's share of weights, optimizer states and gradients small. It needs
little communication: one activation crosses each stage boundary. But each rank has to wait for the previous
one, so with all batches together only one rank works at a time. The idle time is called the pipeline bubble;
here it is about three quarters.
""",
    in_practice="""\
This is the simplest form of pipeline parallelism, also called naive model parallelism. You get it by placing
layers on different GPUs and doing nothing else. Huang et al. (2019) show it as the baseline to improve on,
and Narayanan et al. (2019) start from it too. The next puzzle fills the bubble.
""",
    sources=(GPIPE, PIPEDREAM),
    praise="Each rank has a quarter of the layers, and no weight is ever sent.",
)
