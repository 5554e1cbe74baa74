"""pipeline_fsdp: four parallel pipelines, with every weight in sixteen shards."""

from lib import Goal, Size
from lib.judging.family import SHARDED_PIPELINE
from puzzles.catalog.papers import BREADTH_FIRST_PIPELINE, MEGATRON_CLUSTERS, ZERO
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Pipeline + FSDP",
    goal=Goal(
        "pipeline_fsdp",
        Size(layers=4, batches=4, ranks=16),
        time=15,
        memory=1_000_000,
        traffic=3_200_000,
        records=RECORDS[4, 4, 16],
        family=SHARDED_PIPELINE,
        steady=True,
        decides="star",
    ),
    # Always 16 ranks: the puzzle is four stages for each of four batches.
    other_sizes=(Size(8, 4, 16), Size(12, 4, 16)),
    statement="""\
This puzzle combines a pipeline with FSDP. There are 16 ranks: four pipelines of four stages. Rank `r` is stage
`r % 4` of pipeline `r // 4`, and pipeline `p` takes batch `p`. Between the stages of a pipeline, activations
and their gradients are sent with `pass_to` and `receive`, from one rank to its neighbor.

At the same time, every layer's weight and optimizer state are cut into 16 shards, one on each rank. So a
weight has to be gathered from all ranks before a stage can use it, and its gradient is reduce-scattered over
all ranks afterwards. Collectives involve every rank: a rank with no work on a layer still has to join. To a
`scatterreduce` it contributes a gradient of no batches, which is zero: `empty_grad(layer)`.
""",
    starter='''\
async def pipeline_fsdp(model: Model) -> Model:
    """Pipeline + FSDP: four pipelines of four stages, every weight sharded over all 16 ranks."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, batch = model.rank % 4, model.rank // 4
    per_stage = model.LAYERS // 4
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    def empty_grad(layer: int) -> WeightGrad:
        return model.fake_grad(layer, [])

    # ----- your code -----
    # Every rank joins the collectives of every layer; each stage computes only its own layers.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=(
        "get_activation",
        "allgather",
        "forward",
        "loss",
        "backward",
        "scatterreduce",
        "pass_to",
        "receive",
        "update",
    ),
    hints=(
        "Let every rank loop over all layers, not only over its own. In the loop, put the collectives outside "
        "any `if`, and the computation inside `if layer in my_layers`.",
        "A stage receives just before its first layer and passes on just after its last. For all other layers "
        "it only gathers the weight and deletes it right away.",
        "Watch the order: a rank that waits in `receive` does not join a collective. Receive for layer "
        "`my_layers[0]` after the collectives of all earlier layers, because the sender joins those first.",
        "Forward, for every layer: `if layer == my_layers[0]`, get the input (stage 0 with "
        "`get_activation([batch])`); gather; `if layer in my_layers`, forward; delete the full weight; "
        "`if layer == my_layers[-1]`, pass the activation on, or compute the loss. Backward mirrors this, with a "
        "`scatterreduce` of the gradient or of `empty_grad(layer)` in every round. Then update your shard of "
        "every layer.",
    ),
    concept="""\
You can combine kinds of parallelism: data between the pipelines, layers within each pipeline, shards over all
ranks. Each rank permanently stores a sixteenth of the model. The catch is synchronization. Every rank has to
join every gather, so the stages wait for each other in communication as well as in computation.
""",
    in_practice="""\
No combination is best in all cases. It depends on the sizes of model and batch, on memory, and on how fast the
links are within a machine and between machines. Combined naively, as here, pipelines and sharding do not work
well together, because the weights are sent again for each microbatch. Lamy-Poirier (2022) orders the schedule
breadth-first, so that one gather serves many microbatches. Megatron-LM combines pipelines with data and tensor
parallelism (Narayanan et al. 2021).
""",
    sources=(BREADTH_FIRST_PIPELINE, MEGATRON_CLUSTERS, ZERO),
    praise="A pipeline and FSDP in one schedule, on 16 ranks.",
)
