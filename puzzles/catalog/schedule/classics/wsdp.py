"""wsdp: each rank keeps a shard of every weight and gathers the full weight when a layer needs it."""

from lib import Goal, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import WEIGHT_UPDATE_SHARDING, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Weight-sharded data parallel",
    goal=Goal(
        "wsdp",
        Size(layers=6, batches=4, ranks=4),
        time=20,
        memory=2_800_000,
        traffic=4_700_000,
        records=RECORDS[6, 4, 4],
        family=SHARDED,
        steady=True,
        decides="star",
    ),
    other_sizes=(Size(3, 2, 2), Size(4, 8, 8)),
    statement="""\
In data parallelism, every rank keeps the same weights. Here each rank keeps a quarter: shard `model.rank` of
`model.RANKS` of every layer's weight, and of its optimizer state. But `forward` and `backward` need the full
weight. Gather it with `await model.allgather(shard, layer)` just before the call, and delete it right after.

Rank r again takes batch r. At the end, sum the gradients with `allreduce`, and let
each rank update the shard that it keeps.
""",
    starter='''\
async def wsdp(model: Model) -> Model:
    """Weight-sharded data parallel: a shard of every weight on each rank, gathered when needed."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # Gather each weight before forward and before backward; sum the gradients; update your shards.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("allgather", "forward", "loss", "backward", "allreduce", "update"),
    hints=(
        "Start from `ddp`. Only two lines change: the weight that forward uses, and the weight that backward uses.",
        'Keep the gathered weight under a separate key, such as `weights["full"]`, so that the shard stays in '
        "`weights[layer]`. You update the shard.",
        "One full weight at a time is enough. Forward no longer needs it once the next activation exists; "
        "backward gathers it again.",
        'For each layer forward: `weights["full"] = await model.allgather(weights[layer], layer)`, then '
        'forward with it, then `del weights["full"]`. Do the same around backward, in reverse order. At the '
        "end, all-reduce each gradient and update the shards, `weights[layer]` and `opt_states[layer]`.",
    ),
    concept="""\
If every rank holds the same weight, all copies but one are redundant. Sharding stores the weight once over
all ranks, and pays with communication: the weight is sent twice, once for forward and once for backward. The
optimizer state is never sent, because each rank updates only its own shard.
""",
    in_practice="""\
ZeRO (Rajbhandari et al. 2020) defines three stages: shard the optimizer state, then the gradients, then the
weights. This puzzle shards states and weights, and keeps full gradients; it is a step towards the next
puzzle. Xu et al. (2020) made a compiler that shards the weight update of data parallel programs automatically.
""",
    sources=(ZERO, WEIGHT_UPDATE_SHARDING),
    praise="Each rank keeps a quarter of the weights, and computes with all of them.",
)
