"""axis_inside: tensor parallelism stays in a machine, data parallelism goes between machines."""

from lib import Goal, Setting, Size
from lib.judging.family import TENSOR_PARALLEL
from puzzles.catalog.papers import H100, MEGATRON, MEGATRON_CLUSTERS
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Which axis goes inside the machine?",
    goal=Goal(
        "axis_inside",
        Size(layers=4, batches=2, ranks=8),
        time=2_699,
        memory=109_900_000,
        traffic=192_900_000,
        records=records(TENSOR_PARALLEL, (2_523.0, 92_274_688, 192_937_984, "axis_inside_states_in_shards")),
        setting=Setting("hopper_long_machines", mesh={"machine": 2, "gpu": 4}, layer="block"),
        family=TENSOR_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(6, 2, 8), Size(4, 4, 8)),
    statement="""\
Two machines with four GPUs each. Inside a machine NVLink carries 225,000 elements per microsecond; between machines
InfiniBand carries 25,000. A group with ranks in both machines runs at the speed of InfiniBand.

There are two microbatches of 4,096 tokens, so each has to be shared by four GPUs. Layers are blocks: with a shard of
the weight, `forward` and `backward` give part of a sum, as in `tensor_parallel`. Tensor parallelism sums activations in
every layer. Data parallelism sums gradients once a step.

Ranks 0 to 3 are machine 0, ranks 4 to 7 are machine 1. The mesh has two axes: `group="gpu"` is the four ranks of a
machine, and `group="machine"` is the two ranks with the same place in both. A group may also be a list of ranks, such
as `[0, 1, 4, 5]`. Which groups share a microbatch?

To meet the memory target, delete the model's input after its forward: `get_activation` returns it again at any time.
Leave out the sum of the gradient of the model's input, which nobody reads.

Predict first: how many times as long does a step take if the groups of tensor parallelism are in both machines?
""",
    answer="""\
3.2 times: 8,383 us against 2,612 us. The traffic is the same, 192,937,984 elements from each rank. Only the links
differ: 176,160,768 of them go between machines in the slow placement, 16,777,216 in the fast placement. All eight GPUs
on each microbatch take 17,965 us.
""",
    starter='''\
async def axis_inside(model: Model) -> Model:
    """Tensor parallelism in one kind of group, data parallelism in the other."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    machine, machines = model.index("machine"), len(model.axis("machine"))
    gpu, gpus = model.index("gpu"), len(model.axis("gpu"))

    # ----- your code -----
    # Choose the groups. Load shards; forward and backward with sums of parts; sums of gradients; update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("load_weights", "get_activation", "forward", "loss", "backward", "allreduce", "update"),
    parameters=("group",),
    hints=(
        "A rank sends 176,160,768 elements to sum activations and 16,777,216 to sum gradients. Which of the two sums "
        "should use NVLink?",
        "Share each microbatch inside a machine: a rank keeps shard `gpu` of `gpus`, and trains microbatch `machine`, "
        "or as many as there are for each machine.",
        'After each forward: `activations[layer + 1] = await model.allreduce(part, layer + 1, group="gpu")`. After '
        "each backward but the last the same for the gradient of the input, with `layer - 1`.",
        "When backward is over, for each layer: `grad_weights[layer] = await model.allreduce(grad_weights[layer], "
        'layer, group="machine")`, then the update. Delete each part after its sum, and use '
        "`model.get_activation(mine)` twice.",
    ),
    concept="""\
Two kinds of parallelism send the same number of elements wherever they are placed. Their time depends on the link. The
kind that sends more, and waits for it in every layer, goes on the faster link. Here tensor parallelism sends ten times
as much as data parallelism, and nothing overlaps with it.
""",
    in_practice="""\
Megatron-LM keeps tensor parallelism inside a server of eight GPUs, and measures that it is slow across servers
(Narayanan et al. 2021, section 3.2). The parallel block with one sum forward and one sum backward is from Shoeybi et
al. (2019). The bandwidths are of NVLink in an H100 (NVIDIA 2022) and of one InfiniBand port of 400 Gbit/s.
""",
    sources=(H100, MEGATRON, MEGATRON_CLUSTERS),
    praise="The axis that sends most uses the fastest links.",
)
