"""tensor_parallel: a single microbatch on four ranks, each of which computes a quarter of every layer."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import TENSOR_PARALLEL
from puzzles.catalog.papers import MEGATRON
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Tensor parallelism",
    goal=Goal(
        "tensor_parallel",
        Size(layers=4, batches=1, ranks=4),
        time=5,
        memory=1_100_000,
        traffic=1_300_000,
        records=(Record(5.6, 1_048_576, "solutions/tensor_parallel.py", TENSOR_PARALLEL, 1_376_256),),
        setting=Setting("quarters", layer="block"),
        family=TENSOR_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(4, 1, 2), Size(3, 2, 4)),
    statement="""\
There are one batch and four ranks. Data parallelism and pipelines need more batches. To make a single batch faster,
the ranks must work on the same layer at the same time.

Here a layer is a *block* of two matrices. Each shard of it takes the full input and produces a partial result; the sum
of the partial results is the output. A forward with shard `model.rank` of `model.RANKS` takes a quarter of the time
and returns a *part* of the activation. The next layer needs the sum: `allreduce` sums parts of activations, too.
Backward is similar: the weight gradient of a shard is complete, and stays on its rank; the input gradient is a part of
a sum. Traffic has a target too: leave out a sum that nobody reads.
""",
    starter='''\
async def tensor_parallel(model: Model) -> Model:
    """Tensor parallelism: every rank computes its shard of every layer, and the parts are added up."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation(range(model.BATCHES))

    # ----- your code -----
    # Forward and backward as on one rank, with a sum wherever the full value is needed.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "allreduce", "loss", "backward", "update"),
    hints=(
        "Write the training step of a single rank first: forward through all layers, loss, backward, update. Then "
        "see where an operation refuses a part.",
        "After each forward: `await model.allreduce(part, layer + 1)`, since the output of a layer is the "
        "activation of the next one. The same for the activation gradient after a backward, whose label is `layer "
        "- 1`.",
        "Weight gradients need no collective at all. Every rank has seen the whole batch, and its shard's gradient "
        "is complete; so it can update its shard right after the backward.",
        "`grad_weights[layer], part = model.backward(layer, activations.pop(layer), grad_activations.pop(layer), "
        "weights[layer])`, then the sum of `part`, unless `layer` is 0, then the update with "
        "`grad_weights.pop(layer)`. Nobody reads one of the eight sums: leave it out.",
    ),
    concept="""\
Tensor parallelism splits the work of a layer, not the batches. It makes a single batch faster, and it splits weights,
gradients and states without gathering any of them. The price is an all-reduce of activations after every layer in both
directions, and computation has to wait for it. One rank alone would take 9.5 steps here. Four ranks take 5.6, more
than a quarter.
""",
    in_practice="""\
Megatron-LM cuts the first matrix of a block by columns and the second one by rows, so that a block needs one
all-reduce forward and one backward, and an attention layer, cut by heads, needs the same (Shoeybi et al. 2019).
Since the sums are so frequent, it is used between the GPUs of one machine.
""",
    sources=(MEGATRON,),
    praise="Four ranks work on one batch at the same time.",
)
