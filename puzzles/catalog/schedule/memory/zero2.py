"""zero2: several microbatches a rank, and the gradients in shards as well (ZeRO-2)."""

from lib import Goal, Setting, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Shard the gradients",
    goal=Goal(
        "zero2",
        Size(layers=4, batches=16, ranks=4),
        time=39,
        memory=2_300_000,
        traffic=3_900_000,
        records=records(
            SHARDED,
            (39.7, 2_228_224, 3_932_160, "zero2_sum", "shards"),
            (36.1, 2_883_584, 1_572_864, "zero2_sum", "full_gradients"),
        ),
        setting=Setting("ring"),
        family=SHARDED,
        steady=True,
    ),
    reload_reason="the next step begins with full weights again",
    reload_advice="Gather every weight with `allgather` after its update.",
    other_sizes=(Size(3, 4, 2), Size(2, 16, 8)),
    statement="""\
Now every rank has four microbatches, and takes them one after the other: rank `r` has batches `4 r` to `4 r + 3`.
Between the first and the last of them, it has to keep a gradient of every layer.

As in `zero1`, you could add up full gradients and scatter each sum once. That takes a quarter of the calls, but every
rank then keeps a full gradient of every layer. Here memory is short: `scatterreduce` the gradient of every microbatch
right after its backward, and add up the shards. This saves memory and takes more time.
""",
    starter='''\
async def zero2(model: Model) -> Model:
    """ZeRO stage 2: optimizer states and gradients in shards, four microbatches on each rank."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.BATCHES // model.RANKS
    batches = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

    # ----- your code -----
    # Each batch forward and backward, scattering each gradient at once; then update and gather as in zero1.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "scatterreduce", "update", "allgather"),
    hints=(
        "Put the forward and backward of `zero1` into a loop over `batches`, and leave the update after the loop.",
        "What does a rank keep from one microbatch to the next? Only its shards of the gradients, one for each "
        "layer. The full gradient of a layer exists only for a moment.",
        "Shards add up like gradients: `grad_weights[layer] = grad_weights[layer] + shard`, if there is one already.",
        'In the backward loop: store the new gradient as `grad_weights["full"]`, then `shard = await '
        'model.scatterreduce(grad_weights["full"], layer)`, then `del grad_weights["full"]` and add the shard. The '
        "update of each layer is as in `zero1`.",
    ),
    concept="""\
Stage 2 keeps a share of the gradients, as stage 1 keeps a share of the states. If a step has one microbatch, that
costs nothing: the gradient is scattered once anyway. If it has several, each of them is scattered, so the calls and
the bytes grow with the number of microbatches. Stage 1 scatters once a step, and keeps full sums until then: each rank
sends 1,572,864 elements, with a peak of 2,883,584. With stage 2 each rank sends 3,932,160, with a peak of 2,228,224.
""",
    in_practice="""\
In ZeRO (Rajbhandari et al. 2020), stage 2 scatters gradients in buckets during backward and frees them at once.
PyTorch FSDP lets you choose when you accumulate: reduce every microbatch's gradients, or keep full gradients on each
rank and reduce once, which takes more memory (Zhao et al. 2023).
""",
    sources=(ZERO, PYTORCH_FSDP),
    praise="Sixteen microbatches, and never more than one full gradient on a rank.",
)
