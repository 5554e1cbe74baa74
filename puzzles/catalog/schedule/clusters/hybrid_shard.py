"""hybrid_shard: weights in shards inside a machine, gradients summed between machines."""

from lib import Goal, Setting, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Hybrid sharding",
    goal=Goal(
        "hybrid_shard",
        Size(layers=4, batches=8, ranks=8),
        time=14,
        memory=1_400_000,
        traffic=2_600_000,
        records=records(
            SHARDED,
            (14.4, 1_310_720, 2_424_832, "hybrid_shard_one_full_weight", "within_a_machine"),
            (24.9, 1_048_576, 2_523_136, "hybrid_shard_one_full_weight", "over_all_ranks"),
        ),
        setting=Setting("islands", mesh={"replica": 2, "shard": 4}),
        family=SHARDED,
        steady=True,
    ),
    other_sizes=(Size(3, 8, 8), Size(6, 8, 8)),
    statement="""\
Eight ranks are in two machines of four. Inside a machine, gathering a weight from four shards takes 0.3 steps. A
collective with ranks in both machines takes four times as long for each element that a rank sends.

`fsdp` over all eight ranks would gather every weight twice across both machines. Shard inside each machine instead:
each machine has the full model, in four shards. Ranks 0 to 3 are one machine, 4 to 7 the other. The mesh has two axes:
`group="shard"` names the four ranks of a machine, and `group="replica"` the two ranks with the same shard, one in each
machine.

The gradients of one machine cover only its four batches, so the shards still have to be summed between machines.
That is one slow call for each layer, instead of three.
""",
    starter='''\
async def hybrid_shard(model: Model) -> Model:
    """Fully sharded inside a machine, replicated between machines."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    place, places = model.index("shard"), len(model.axis("shard"))
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, place, places)

    # ----- your code -----
    # As in fsdp, with a group for every collective, and one more sum before the update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("allgather", "forward", "loss", "backward", "scatterreduce", "allreduce", "update"),
    parameters=("group",),
    hints=(
        'Start from `fsdp`, and give every collective `group="shard"`. What is then missing before the update?',
        "After the scatter, a rank has its shard of the gradient of four batches. The same shard of the other four "
        'batches is on one rank of the other machine: the group "replica".',
        "Sum the shards with `allreduce`, after the scatter: then only a quarter of each gradient is summed between "
        "the machines.",
        "In the update loop: `grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, "
        'group="replica")`, then the update. In the loops above it, delete full weights, activations and gradients '
        "as in `fsdp`.",
    ),
    concept="""\
You can choose over how many ranks to shard. Sharding over more ranks saves memory, but every gather crosses the
slowest link between them. Sharding inside a machine keeps the frequent calls on fast links, and leaves one sum of
small shards for the slow links. A reduce-scatter inside the machines and an all-reduce between them sum the gradients
over all ranks, in two levels.
""",
    in_practice="""\
PyTorch FSDP calls this hybrid sharding, HYBRID_SHARD (Zhao et al. 2023): the sharding factor lies between one, which
is DDP, and the number of ranks, which is full sharding as in ZeRO (Rajbhandari et al. 2020). Usually it is the number
of devices in a machine.
""",
    sources=(PYTORCH_FSDP, ZERO),
    praise="Gathers stay inside a machine, and one call for each layer crosses the network.",
)
