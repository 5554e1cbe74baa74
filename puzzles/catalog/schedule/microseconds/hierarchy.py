"""hierarchy: an all-reduce in two levels sends between machines only what must cross."""

from lib import Goal, Setting, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import BLUECONNECT, H100, RING_ALL_REDUCE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Sum inside, then between",
    goal=Goal(
        "hierarchy",
        Size(layers=4, batches=16, ranks=16),
        time=3_799,
        memory=189_900_000,
        traffic=125_900_000,
        records=records(DATA_PARALLEL, (3_688.0, 176_160_768, 125_829_120, "hierarchy_input_again")),
        setting=Setting("hopper_machines", mesh={"machine": 4, "gpu": 4}),
        family=DATA_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(2, 16, 16), Size(6, 16, 16)),
    statement="""\
This is data parallelism on 16 GPUs, in four machines of four. NVLink inside a machine carries 225,000 elements per
microsecond, and InfiniBand between machines 25,000 for each GPU.

An all-reduce over all ranks is one ring through four machines. Each rank sends almost twice the size of the gradient,
all of it at the speed of the slowest link. Send over that link only what must cross it.

Ranks 0 to 3 are machine 0, 4 to 7 machine 1, and so on. `group="gpu"` is the four ranks of a machine, `group="machine"`
is the four ranks with the same place in each machine. The sum of a gradient can be made in several calls, and each
takes a group.

Predict first: how long does the sum of one gradient take in one ring, and how long in two levels?
""",
    answer="""\
1,409 us against 406 us. One ring of 16 has 30 hops of 5 us, and sends 31,457,280 elements at 25,000 per us. In two
levels a reduce-scatter inside takes 62 us, the all-reduce of a quarter between machines 282 us, and the gather inside
62 us. The step takes 3,688 us in place of 7,700 us. The traffic of a rank is the same, 125,829,120 elements, but only a
fifth of it goes between machines.
""",
    starter='''\
async def hierarchy(model: Model) -> Model:
    """Data parallelism whose gradients are summed in two levels."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # As in ddp; but in how many calls, and over which groups, is a gradient summed?

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "scatterreduce", "allreduce", "allgather", "update"),
    parameters=("group",),
    hints=(
        "Start from `ddp`. Two all-reduces, one over each axis, give the right sum: 6,708 us. What do four ranks of a "
        "machine then send between machines?",
        "After the first all-reduce the four ranks of a machine have the same sum, and each sends all of it. If each "
        "had a quarter of the sum, it would send a quarter.",
        "`scatterreduce` inside a machine leaves each rank with a quarter. The same quarter is on one rank of each "
        "other machine: the group `machine`. When the quarters are summed, join them inside the machine.",
        'For each gradient: `await model.scatterreduce(grad, layer, group="gpu")`, `await model.allreduce(grad, '
        'layer, group="machine")`, `await model.allgather(grad, layer, group="gpu")`.',
    ),
    concept="""\
An all-reduce is a reduce-scatter and an all-gather. Between the two, each rank of a machine holds a different quarter
of the machine's sum, so the slow links carry each element of it once in each direction, on four links at the same time.
The order matters: with the scatter between machines and the all-reduce inside, the full gradient crosses the slow
links, and the step takes 6,376 us.
""",
    in_practice="""\
BlueConnect decomposes an all-reduce into reduce-scatters and all-gathers along the levels of a network (Cho et al.
2019). NCCL and other libraries choose such algorithms by themselves; hybrid sharding in FSDP has the same pattern. The
ring's cost is from Patarasuk and Yuan (2009), the bandwidth of NVLink from NVIDIA (2022).
""",
    sources=(H100, RING_ALL_REDUCE, BLUECONNECT),
    praise="Each GPU sums only a quarter of each gradient between machines.",
)
