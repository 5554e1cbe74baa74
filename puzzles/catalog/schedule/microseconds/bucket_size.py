"""bucket_size: large buckets need few calls, small buckets overlap with backward."""

from lib import Goal, Setting, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import H100, PYTORCH_DDP, RING_ALL_REDUCE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Latency against overlap",
    goal=Goal(
        "bucket_size",
        Size(layers=16, batches=8, ranks=8),
        time=2_549,
        memory=176_900_000,
        traffic=29_300_000,
        records=records(DATA_PARALLEL, (2_441.0, 167_772_160, 29_360_128, "bucket_size_growing")),
        setting=Setting("hopper_narrow"),
        family=DATA_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(8, 8, 8), Size(12, 4, 4)),
    statement="""\
Data parallelism with overlap, as in `ddp_overlap`, on eight GPUs in eight machines. There are 16 layers with a width of
1,024, and a microbatch has 8,192 tokens.

An all-reduce over eight ranks takes 14 hops. A hop takes 5 us, however small the message: 70 us a call. The elements of
one layer's gradient take 73 us more. A backward of one layer takes 86 us. A call with a list of gradients is a bucket:
it pays for its hops once.

A call for each layer takes 144 us, longer than its backward, so the lane falls behind. One bucket for all layers
starts only when backward has ended. Which size between the two is best?

Predict first: how many layers go into a bucket, if all buckets have the same number?
""",
    answer="""\
Four: 2,488 us. Buckets of three take 2,545 us, pairs 2,596, one layer 3,078, eight 2,722 and all sixteen 3,309. With k
layers in a bucket the lane starts 86 k us after backward, then makes 16 / k calls of 70 us, besides 1,175 us for the
elements. 86 k + 1,120 / k is smallest at k = 3.6, the square root of 1,120 / 86.

Buckets need not be equal. Begin with small buckets, so that the lane starts early: buckets of 1, 2, 3, 3, 3 and 4
layers take 2,441 us.
""",
    starter='''\
async def bucket_size(model: Model) -> Model:
    """Data parallelism whose gradients are summed in buckets while backward goes on."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, loss; backward, where each full bucket is sent at once; then await the sums and update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "allreduce", "update"),
    hints=(
        "Start from your `ddp_overlap`, and make the number of layers in a bucket a constant. Then measure.",
        "`grad_weights` holds the gradients that are not sent yet. When there are SIZE of them, or after layer 0, "
        "send them all in one call.",
        "`bucket = list(grad_weights)` has the layers. `model.allreduce([grad_weights.pop(one) for one in bucket], "
        "bucket)` takes the gradients out of the storage, and returns a handle; keep both in a list.",
        "After backward: `for bucket, total in sums: grad_weights.update(zip(bucket, await total))`, then update each "
        "layer of the bucket. Buckets of four meet the target.",
    ),
    concept="""\
A call has a price that does not depend on its size, and a price for each element. Overlap hides both, until the last
gradient exists; what is left in the lane then is waiting time. More buckets start earlier and pay for more calls. The
best size follows from three numbers: the time of a call's hops, the backward of a layer, and the number of layers. It
is not a property of the model alone: with 64 ranks a call has 126 hops.
""",
    in_practice="""\
PyTorch's DistributedDataParallel has a bucket_cap_mb, 25 by default, and a first bucket of 1 MB so that communication
starts early; Li et al. (2020) measure several sizes, and find that the best one differs between models and libraries.
Ring all-reduces pay 2(n-1) hops (Patarasuk and Yuan 2009). The prices are of InfiniBand at 400 Gbit/s, and of an H100
(NVIDIA 2022).
""",
    sources=(H100, RING_ALL_REDUCE, PYTORCH_DDP),
    praise="Few calls, and the first of them starts early.",
)
