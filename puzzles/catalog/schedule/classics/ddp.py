"""ddp: four ranks each take one batch and all-reduce the gradient of every layer."""

from lib import Goal, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import PYTORCH_DDP, RING_ALL_REDUCE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Distributed data parallel",
    goal=Goal(
        "ddp",
        Size(layers=2, batches=4, ranks=4),
        time=5,
        memory=1_800_000,
        traffic=700_000,
        records=RECORDS[2, 4, 4],
        family=DATA_PARALLEL,
        decides="star",
    ),
    other_sizes=(Size(3, 2, 2), Size(5, 6, 6)),
    statement="""\
Now there are as many ranks as batches, and rank r takes batch r. Every rank holds the full model: it loads all
weights, and goes forward and backward with its batch. Its gradients then cover only one batch of four. Sum them
over all ranks with `await model.allreduce(grad, layer)`, and let every rank make the same update.

Your function runs once on each rank, at the same time; `model.rank` is the number of the rank. Compared with
gradient accumulation, the same work takes about a quarter of the time.
""",
    starter='''\
async def ddp(model: Model) -> Model:
    """Distributed data parallel: the full model and one batch on every rank."""
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
        "From loading to the end of backward, a rank does what it does in `basic`, with one batch. No rank "
        "needs another until the gradients are ready.",
        "`allreduce` involves other ranks, so you have to await it, and every rank has to call it for the "
        "same layers in the same order.",
        "`allreduce` returns a new value, the sum. Store it over the rank's own gradient, so that you don't "
        "keep both: `grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)`.",
        "After backward, for each layer: all-reduce the gradient, then "
        "`weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], "
        "opt_states[layer])`. Remember the deletions from `basic`.",
    ),
    concept="""\
Data parallelism: replicate the model, divide the batch, sum the gradients. All ranks start from the same
weights and apply the same summed gradient, so the replicas stay equal and no weight is ever sent. An
all-reduce can pass pieces around a ring. Each device then sends about twice the size of the gradient, no
matter how many devices there are (Patarasuk and Yuan 2009): 2 (n-1)/n of it, here 786,432 elements for two layers.
""",
    in_practice="""\
PyTorch's DistributedDataParallel does this. There, communication overlaps with computation, which this clock does not
allow: DDP collects gradients in buckets, and starts the all-reduce of a bucket as soon as the bucket is full, while
backward continues (Li et al. 2020).
""",
    sources=(PYTORCH_DDP, RING_ALL_REDUCE),
    praise="The work is divided by four, and all ranks have the same weights.",
)
