"""tp_limit: the smallest tensor-parallel group that uses every GPU is the fastest one."""

from lib import Goal, Setting, Size
from lib.judging.family import TENSOR_PARALLEL
from puzzles.catalog.papers import H100, MEGATRON, MEGATRON_CLUSTERS
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="When does tensor parallelism stop paying?",
    goal=Goal(
        "tp_limit",
        Size(layers=4, batches=4, ranks=8),
        time=1_699,
        memory=114_900_000,
        traffic=114_900_000,
        records=records(TENSOR_PARALLEL, (1_564.0, 75_497_472, 109_051_904, "tp_limit_states_in_shards")),
        setting=Setting("hopper_nvlink", mesh={"gpu": 8}, layer="block"),
        family=TENSOR_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(6, 4, 8), Size(4, 2, 8)),
    statement="""\
Eight GPUs in one machine, connected by NVLink, and four microbatches of 2,048 tokens. Layers are blocks, so a
microbatch can be shared by 2, 4 or 8 GPUs: with a shard of the weight, `forward` and `backward` give part of a sum.

Each doubling of the group halves the work of a microbatch, and doubles the microbatches of the group: the computation
of a step stays the same. The sums do not get cheaper. A group may be a list of ranks, such as `group=[0, 1, 2, 3]`.
Groups that train different microbatches have to sum their gradients: ranks that keep the same shard form a group as
well.

The gradient of the model's input is not read by anybody, so leave out its sum.

Predict first: what is the smallest size of a group with which every GPU has work, and how much of a step is
computation?
""",
    answer="""\
Two GPUs. Four groups of two train one microbatch each. Computation takes 4 x (86 + 172) = 1,032 us of 1,598 us. Groups
of four take 1,992 us, and one group of eight takes 3,055 us. One GPU for each microbatch would leave four GPUs idle.
""",
    starter='''\
async def tp_limit(model: Model) -> Model:
    """Groups of GPUs that share microbatches; between groups, data parallelism."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    # ----- your code -----
    # Choose the size of a group. Then load shards, train, and sum parts and gradients.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("load_weights", "get_activation", "forward", "loss", "backward", "allreduce", "update"),
    parameters=("group",),
    hints=(
        "Write it for groups of any size first: `size` GPUs share `size * model.BATCHES // model.RANKS` microbatches. "
        "Then try 8, 4 and 2.",
        "The sum of an activation sends 2 (n-1)/n of its elements in a group of n: 1, 1.5 or 1.75 times. And a group "
        "of 8 sums four microbatches, a group of 2 only one.",
        "With `size = model.RANKS // model.BATCHES`, rank r trains microbatch `r // size` and keeps shard `r % size`. "
        "The ranks with the same shard are `r % size`, `r % size + size` and so on.",
        "`group = list(range(batch * size, (batch + 1) * size))` sums parts: `await model.allreduce(part, layer + 1, "
        "group=group)`, and after backward with `layer - 1`, except for layer 0. `replicas = list(range(part, "
        "model.RANKS, size))` sums gradients.",
    ),
    concept="""\
Tensor parallelism divides the work of a layer, and pays for each division with sums whose size does not shrink. As long
as there are microbatches to share out, data parallelism uses the GPUs at a lower price: one sum of gradients a step. So
tensor parallelism is for what data parallelism cannot do: more GPUs than microbatches, or layers that do not fit on one
GPU.
""",
    in_practice="""\
Shoeybi et al. (2019) report 77% of linear scaling on 8 GPUs with tensor parallelism alone. Narayanan et al. (2021) take
the smallest tensor and pipeline parallelism with which the model fits, and data parallelism for the rest. The game
uses the bandwidth of NVLink in an H100 (NVIDIA 2022).
""",
    sources=(H100, MEGATRON, MEGATRON_CLUSTERS),
    praise="Fewer GPUs for each layer, and a shorter step.",
)
