"""Puzzle 2, ddp: four ranks each take a batch and all-reduce the gradient of every layer."""

from lib import Goal, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import PYTORCH_DDP, RING_ALL_REDUCE

from .puzzle import SchedulePuzzle
from .records import RECORDS

PUZZLE = SchedulePuzzle(
    number=2,
    title="Distributed data parallel",
    goal=Goal(
        "ddp",
        Size(layers=2, batches=4, ranks=4),
        time=5,
        memory=1_800_000,
        records=RECORDS[2, 4, 4],
        family=DATA_PARALLEL,
    ),
    other_sizes=(Size(3, 2, 2), Size(5, 6, 6)),
    statement="""\
Now there are as many ranks as batches, and each rank takes the batch of its own number. Every rank holds
the whole model: it loads all the weights, goes forward and backward with its batch, and has then a gradient
that knows one batch of four. Sum the gradients over all ranks with `await model.allreduce(grad, layer)`,
and let every rank make the same update.

Your function runs once for each rank, at the same time; `model.rank` says which one it is. Compared with
gradient accumulation the same work takes about a quarter of the time.
""",
    starter='''\
async def ddp(model: Model) -> Model:
    """Distributed data parallel: the whole model on every rank, one batch for each."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])

    # ----- your code -----
    # Load the weights, forward, loss, backward, add up over all ranks, update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("load_weights", "forward", "loss", "backward", "allreduce", "update"),
    hints=(
        "Between loading and the end of backward a rank does what it does in `basic`, with one batch. Nobody "
        "needs anybody until the gradients are there.",
        "`allreduce` involves other ranks, so it has to be awaited, and every rank has to call it for the "
        "same layers in the same order.",
        "What `allreduce` returns is a new value, the sum. Put it where the rank's own gradient stood, so "
        "that both are not kept: `grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)`.",
        "After backward, for each layer: the allreduce, and then "
        "`weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], "
        "opt_states[layer])`. Remember the deletions of `basic`.",
    ),
    concept="""\
Data parallelism: replicate the model, divide the batch, sum the gradients. Because every rank starts from
the same weights and adds the same sum, all replicas stay equal without ever sending a weight. An
all-reduce can be done by passing pieces around a ring; each device then sends about twice the size of the
gradient, however many devices there are (Patarasuk and Yuan 2009).
""",
    in_practice="""\
PyTorch's DistributedDataParallel does this. It does not wait for the end of backward, as our clock makes
you do: it collects gradients in buckets and starts the all-reduce of a bucket as soon as it is full, while
backward goes on (Li et al. 2020).
""",
    sources=(PYTORCH_DDP, RING_ALL_REDUCE),
    praise="Everyone fetched one stick, and now everyone knows of all of them.",
)
