"""zero1: data parallelism that shards the optimizer states (ZeRO-1)."""

from lib import Goal, Setting, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import WEIGHT_UPDATE_SHARDING, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Shard the optimizer states",
    goal=Goal(
        "zero1",
        Size(layers=4, batches=4, ranks=4),
        time=12,
        memory=2_300_000,
        traffic=1_500_000,
        records=records(
            SHARDED,
            (11.9, 1_835_008, 1_572_864, "fsdp_layer_by_layer", "four_layers_four_full"),
            (12.2, 1_638_400, 1_769_472, "fsdp_layer_by_layer", "four_layers_three_full"),
            (12.5, 1_441_792, 1_966_080, "fsdp_layer_by_layer", "four_layers_two_full"),
            (12.8, 1_245_184, 2_162_688, "fsdp_layer_by_layer", "four_layers_one_full"),
            (12.9, 1_703_936, 1_572_864, "fsdp_layer_by_layer", "four_layers_four_full_one_twice"),
            (13.2, 1_507_328, 1_769_472, "fsdp_layer_by_layer", "four_layers_three_full_one_twice"),
            (13.5, 1_310_720, 1_966_080, "fsdp_layer_by_layer", "four_layers_two_full_one_twice"),
            (13.8, 1_179_648, 2_162_688, "fsdp_layer_by_layer", "four_layers_one_full_one_twice"),
            (13.9, 1_572_864, 1_572_864, "fsdp_layer_by_layer", "four_layers_four_full_two_twice"),
            (14.1, 1_114_112, 2_359_296, "fsdp_layer_by_layer", "four_layers_one_full_one_twice_gathered_again"),
        ),
        setting=Setting("ring"),
        family=SHARDED,
        steady=True,
    ),
    reload_reason="the next step begins with full weights again",
    reload_advice="Gather every weight with `allgather` after its update.",
    other_sizes=(Size(3, 2, 2), Size(2, 8, 8)),
    statement="""\
In `ddp`, every rank keeps all weights, all optimizer states and all gradients. The weights are read in every
forward and backward. The states are read once, by the update, and every rank makes the same update.

Let each rank keep full weights, but only shard `model.rank` of `model.RANKS` of each state, and update only that
shard of each weight: `weights[layer].shard(model.rank, model.RANKS)`. The update needs the same shard of the summed
gradient. Afterwards every rank needs the full new weight. The two halves of an all-reduce do this: `scatterreduce`
before the update, and `allgather` after it. So the states shrink to a quarter, and no more is sent than in `ddp`.

Communication is priced by size here: the two halves together take as long as the all-reduce.
""",
    starter='''\
async def zero1(model: Model) -> Model:
    """ZeRO stage 1: data parallelism with the optimizer states in shards."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

    # ----- your code -----
    # As in ddp, with the update between the two halves of the all-reduce.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "scatterreduce", "update", "allgather"),
    hints=(
        "Forward and backward are as in `ddp`. Only what happens to a gradient after its backward is new.",
        "Right after each backward, `scatterreduce` the gradient. You keep a quarter of the sum, and delete the full "
        "gradient before backward returns the next one.",
        "`update` wants a gradient, a weight and a state of the same shard. You have the gradient and the state. For "
        "the weight, take a shard: `weights[layer].shard(model.rank, model.RANKS)`.",
        "After the backward loop, for each layer: `weights[layer] = weights[layer].shard(model.rank, model.RANKS)`, "
        "then the update of `weights[layer]` and `opt_states[layer]`, then `weights[layer] = await "
        "model.allgather(weights[layer], layer)`. As in `ddp`, delete activations and their gradients as soon as "
        "backward has used them.",
    ),
    concept="""\
An all-reduce is a reduce-scatter followed by an all-gather. The update fits between the two, and updates each element
separately. So a rank that updates one shard needs only that shard of the state. Together the ranks keep one copy of
the states. Compare `ddp` of this size, with each gradient summed right after its backward: both end at 12.4 steps and
send 1,572,864 elements on each rank, and `zero1` needs 27% less memory (2,097,152 elements, not 2,883,584). The
timesteps are the start of the last operation: a gather in `zero1`, an update in `ddp`.
""",
    in_practice="""\
This is stage 1 of ZeRO (Rajbhandari et al. 2020). With Adam in mixed precision, the state is 12 of the 16 bytes of a
parameter, so it is the first thing to shard. A compiler can shard the update of any data parallel program (Xu et al.
2020).
""",
    sources=(ZERO, WEIGHT_UPDATE_SHARDING),
    praise="A quarter of the optimizer states, and no more traffic than `ddp`.",
)
