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
        traffic=2_300_000,
        records=records(
            DATA_PARALLEL,
            (14.5, 5_636_096, 2_359_296, "ddp_overlap_update_early", "one_layer_early"),
            (14.6, 5_373_952, 2_359_296, "ddp_overlap_update_early", "two_layers_early"),
            (14.7, 5_242_880, 2_359_296, "ddp_overlap_update_early", "two_calls_early"),
            (14.8, 4_980_736, 2_359_296, "ddp_overlap_update_early", "two_layers_earlier"),
            (14.9, 4_849_664, 2_359_296, "ddp_overlap_update_early", "three_layers_early"),
        ),
        setting=Setting("buckets"),
        family=DATA_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(3, 2, 2), Size(4, 6, 6)),
    statement="""\
This is data parallelism again, but communication now overlaps with computation. A call of a collective starts it and
returns a handle, and the rank goes on computing; `await handle` waits for the end and returns the sum. Each rank has
one lane to the network: its calls run there one after the other, in the order in which they were made.

The gradient of the last layer is ready first, when most of backward is still to come. Send it then, and await it
when everything else is done.

Each call takes 0.9 steps (a ring of four ranks has six hops of 0.15), and 0.5 more for each gradient in it.
`allreduce` also takes a list of gradients with a list of their layers, and returns a list: a *bucket*. Small buckets
take more calls. A bucket waits for its last gradient, so one large bucket waits for the end of backward. Which size
is best?
""",
    starter='''\
async def ddp_overlap(model: Model) -> Model:
    """Data parallelism whose gradients are summed while backward goes on."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, loss; backward, where gradients are sent in buckets; then await the sums and update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "allreduce", "update"),
    hints=(
        "Only two things change in `ddp`: the call of `allreduce` moves into the backward loop, and `await` does not.",
        "A call for each layer takes 6 x 1.4 steps, longer than backward. One call for all layers starts when "
        "backward has ended. Try buckets of two layers.",
        "Collect layers in a list, and make the call when it has two. The gradients belong to the call until it is "
        "awaited, so take them out of `grad_weights`: `model.allreduce([grad_weights.pop(i) for i in bucket], "
        "bucket)`. "
        "Keep each handle with its bucket, in a list of your own.",
        "Backward, for each layer from the last: backward; delete its input and the gradient that it used; "
        "`bucket.append(layer)`; if the bucket has two layers, or `layer` is 0, make the call, append `(bucket, "
        "handle)` to `sums`, and begin a new bucket. Delete `grad_activations[0]`. Then, for each pair in `sums`: "
        "`grad_weights.update(zip(bucket, await handle))`, and for each layer of the bucket update, and delete the "
        "gradient.",
    ),
    concept="""\
Backward makes the gradients one by one, and nothing needs them before the update. So all sums but the last can hide
behind the rest of backward. Ranks wait only for the last bucket. It should be small, and the earlier buckets should be
through the lane in time. Six gradients can be cut into buckets in 32 ways. Pairs are the fastest: 14.5 steps. A call
for each layer takes 15.4, two buckets of three take 15.4 as well, and one bucket takes 18.4. An update does not have
to wait for the end of backward either. If you update as soon as the sum has arrived, you can free the gradient.
""",
    in_practice="""\
PyTorch's DistributedDataParallel does this (Li et al. 2020). It fills buckets of 25 MB by default in the reverse order
of the layers, and starts a bucket's all-reduce as soon as its last gradient exists. The best size depends on the model
and on the network, and the paper measures it.
""",
    sources=(PYTORCH_DDP,),
    praise="Most gradients are summed before backward ends.",
)
