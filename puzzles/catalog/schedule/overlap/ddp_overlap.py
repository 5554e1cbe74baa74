"""ddp_overlap: gradients are summed in buckets while backward goes on."""

from lib import Goal, Setting, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import PYTORCH_DDP
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="DDP with overlap",
    goal=Goal(
        "ddp_overlap",
        Size(layers=6, batches=4, ranks=4),
        time=14,
        memory=6_000_000,
        records=records(DATA_PARALLEL, (14.5, 4_587_520, 2_359_296, "ddp_overlap_update_early")),
        setting=Setting("buckets"),
        family=DATA_PARALLEL,
    ),
    other_sizes=(Size(3, 2, 2), Size(4, 6, 6)),
    statement="""\
Data parallelism again, but the network now works beside the ranks. A collective starts when it is called, and the
rank computes on. The call returns a handle; `await handle` waits for the end and gives you the sum. Each rank has one
lane to the network: its calls run there one after the other, in the order in which they were made.

The gradient of the last layer is there first, when most of backward is still to come. Send it then, and await it
when everything else is done.

Each call costs 0.5 steps, and 0.5 more for each gradient in it: `allreduce` also takes a list of gradients with a
list of their layers, and returns a list. Many small buckets pay for many calls, and one large bucket waits for the
end of backward. What is best?
""",
    starter='''\
async def ddp_overlap(model: Model) -> Model:
    """Data parallelism whose gradients are summed while backward goes on."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, loss; backward, where each gradient is sent at once; then await the sums and update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "allreduce", "update"),
    hints=(
        "Only two things change in `ddp`: the call of `allreduce` moves into the backward loop, and `await` does not.",
        "Keep the handles: `sums[layer] = model.allreduce(grad_weights[layer], layer)`, in a dictionary of your own. "
        "The gradient belongs to the call until it is awaited, so delete it from `grad_weights`.",
        "Await and update in the order in which the sums arrive: from the last layer to the first. While the "
        "update of one layer runs, the sum of the next can arrive.",
        "Backward, for each layer from the last: backward; delete its input and the gradient that it used, and after "
        "layer 0 also `grad_activations[0]`; `sums[layer] = model.allreduce(...)`; delete the gradient. Then, from "
        "the last layer again: `grad_weights[layer] = await sums[layer]`, update, delete the gradient.",
    ),
    concept="""\
Backward makes the gradients one by one, and nothing needs them before the update. So all sums but the last can hide
behind the rest of backward. What is left to wait for is the last bucket. It should be small, and not late because the
lane is still busy with those before it. An update does not have to wait for the end of backward either: made as soon
as the sum is there, it frees the gradient.
""",
    in_practice="""\
PyTorch's DistributedDataParallel does this (Li et al. 2020). It fills buckets of 25 MB by default in the reverse order
of the layers, and starts a bucket's all-reduce as soon as its last gradient is there. The best size depends on the
model and on the network, and the paper measures it.
""",
    sources=(PYTORCH_DDP,),
    praise="The first ball is back before the last one is thrown.",
)
