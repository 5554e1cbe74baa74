"""fsdp: weights, optimizer states and gradients are all sharded (ZeRO-3)."""

from lib import Goal, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Fully sharded data parallel",
    goal=Goal(
        "fsdp",
        Size(layers=6, batches=4, ranks=4),
        time=20,
        memory=2_300_000,
        traffic=3_500_000,
        records=RECORDS[6, 4, 4],
        family=SHARDED,
        steady=True,
        decides="star",
    ),
    other_sizes=(Size(3, 2, 2), Size(4, 8, 8)),
    statement="""\
In `ddp`, every rank keeps the full model. Here it keeps only its shard of every weight and optimizer state. When a
layer needs the full weight, in forward and again in backward, gather it with `await model.allgather(weight, layer)`,
and delete it after its use.

A rank updates only one shard of each weight, so one shard of the summed gradient is enough. Every rank passes its full
gradient to `await model.scatterreduce(grad, layer)`. The gradients are summed over the batches, and each rank gets its
own shard of the sum. Use it in place of `allreduce`, and use it early, so that no full gradient is kept for long.
""",
    starter='''\
async def fsdp(model: Model) -> Model:
    """Fully sharded data parallel: weights, optimizer states and gradients in shards."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # Gather each weight for its use, and reduce and scatter each gradient as soon as it exists.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("allgather", "forward", "loss", "backward", "scatterreduce", "update"),
    hints=(
        "Keep the loops of `ddp`, and gather each weight right before its use. Where does memory grow during backward, "
        "and does it have to?",
        "Call `scatterreduce` inside the backward loop, right after the `backward` of the layer, not at the "
        "end. Every rank reaches that line for the same layer, so the collective is safe there.",
        "`grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)` replaces the full "
        "gradient with your shard of the sum, which is small.",
        "Shard `rank` of the gradient matches shard `rank` of the weight and of the optimizer state, so the "
        "update is the same line as before. Delete the last layer's output right after the loss. In the "
        "backward loop, delete the full weight, `activations[layer]` and `grad_activations[layer + 1]`.",
    ),
    concept="""\
With weights, optimizer states and gradients all sharded, each of N ranks stores 1/N of the model. Only one layer's
weight at a time is unsharded. An all-reduce is a reduce-scatter followed by an all-gather. Sharding uses the two
halves separately, and puts the all-gather where the weight is needed. An all-reduce instead of each reduce-scatter
takes no longer on this clock, but each rank then sends 4,718,592 elements instead of 3,538,944: a third more.
""",
    in_practice="""\
This is stage 3 of ZeRO (Rajbhandari et al. 2020), and PyTorch's Fully Sharded Data Parallel (Zhao et al.
2023). The weights of a few layers at a time are gathered, used and freed. PyTorch also prefetches the next
weights while the current ones are in use, so that communication overlaps with computation.
""",
    sources=(ZERO, PYTORCH_FSDP),
    praise="Weights, gradients and optimizer states are all in shards.",
)
