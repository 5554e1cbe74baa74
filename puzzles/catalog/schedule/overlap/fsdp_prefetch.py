"""fsdp_prefetch: the next layer's weight is gathered while this layer computes."""

from lib import Goal, Setting, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="FSDP with prefetching",
    goal=Goal(
        "fsdp_prefetch",
        Size(layers=6, batches=4, ranks=4),
        time=15,
        memory=2_400_000,
        traffic=3_300_000,
        records=records(
            SHARDED,
            (15.0, 2_293_760, 3_342_336, "fsdp_prefetch_input_again"),
            (23.0, 1_835_008, 3_342_336, "hybrid_shard_one_full_weight", "over_all_ranks"),
        ),
        setting=Setting("overlap"),
        family=SHARDED,
        steady=True,
    ),
    other_sizes=(Size(3, 2, 2), Size(4, 8, 8)),
    statement="""\
In `fsdp`, every layer waits for its weight. Here collectives overlap with computation, as in `ddp_overlap`: a call
returns a handle, which you await later, and each rank's calls run one after the other in its one lane.

So gather the weight of the next layer while this one computes, and let the scatter of a gradient run while backward
goes on. At most two full weights fit: the weight in use, and the next one.

In backward, each layer needs a gather and a scatter, of 0.5 steps each. One backward just hides both. But the gathered
weight is needed at once, and the scattered gradient only at the end. In the wrong order, the schedule takes a third
longer.
""",
    starter='''\
async def fsdp_prefetch(model: Model) -> Model:
    """Fully sharded data parallelism whose communication overlaps with computation."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # Call the next gather, compute, await it; in backward, scatter as well.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("allgather", "forward", "loss", "backward", "scatterreduce", "update"),
    hints=(
        "Begin with forward: await the weight of this layer, call the gather of the next, then compute.",
        "After forward, the weight of the last layer is still there. Backward can begin with it, without a gather.",
        "Before each backward, call the gather of the layer below; after it, call the scatter. So each gather is "
        "in the lane ahead of the scatter of the layer above, and has ended when backward needs it.",
        "Backward, for each layer from the last: `gather = model.allgather(weights[layer - 1], layer - 1)` unless it "
        'is layer 0; backward with `weights["full"]`; delete the weight, the input and the gradient that was used; '
        "await the scatter of the layer above, if there is one; `scatter = model.scatterreduce(...)` and delete the "
        'full gradient; `weights["full"] = await gather`. Then update, from the last layer to the first.',
    ),
    concept="""\
Sharding saves memory but needs communication, and prefetching hides the communication: the next weight is gathered
while this layer computes. Prefetching needs memory for one more full weight. In forward the lane carries gathers only.
In backward gathers and scatters share the lane, and the gather goes first, because computation waits for it.
""",
    in_practice="""\
PyTorch FSDP issues the all-gather of the next layer before the current layer's reduce-scatter, which it calls backward
prefetching, and limits how many gathered weights exist at a time (Zhao et al. 2023). There, too, both collectives go
through one stream, so their order matters.
""",
    sources=(PYTORCH_FSDP, ZERO),
    praise="Every gather but the first overlaps with computation.",
)
