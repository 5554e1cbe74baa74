"""Puzzle 7, pipeline_fsdp: four pipelines side by side, with every weight in sixteen shards."""

from lib import Goal, Size
from lib.judging.family import SHARDED_PIPELINE
from puzzles.catalog.papers import BREADTH_FIRST_PIPELINE, MEGATRON_CLUSTERS, ZERO

from .puzzle import SchedulePuzzle
from .records import RECORDS

PUZZLE = SchedulePuzzle(
    number=7,
    title="Pipeline + FSDP",
    goal=Goal(
        "pipeline_fsdp",
        Size(layers=4, batches=4, ranks=16),
        time=15,
        memory=1_000_000,
        records=RECORDS[4, 4, 16],
        family=SHARDED_PIPELINE,
        loads_once=True,
    ),
    # 16 ranks throughout: four stages for each of four batches is what the puzzle is.
    other_sizes=(Size(8, 4, 16), Size(12, 4, 16)),
    statement="""\
The last puzzle puts everything together. There are 16 ranks: four pipelines of four stages. Rank `r` is
stage `r % 4` of pipeline `r // 4`, and pipeline `p` takes batch `p`. Between the stages of a pipeline
activations and their gradients travel by `pass_to` and `receive`, from rank to neighbouring rank.

At the same time every layer's weight, with its optimizer state, is cut into 16 shards, one on each rank. So
a weight has to be gathered from all ranks before a stage can use it, and its gradient is reduced and
scattered over all ranks afterwards. Collectives involve everybody: a rank that has no work on a layer joins
them all the same. To a `scatterreduce` it brings a gradient of no batches, which is a zero:
`empty_grad(layer)`.
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
        "Let every rank loop over all layers, not only over its own. Inside the loop the collectives stand "
        "outside any `if`, and the work stands inside `if layer in my_layers`.",
        "A stage receives just before its first layer and passes on just after its last. The others pass the "
        "time by gathering a weight and forgetting it at once.",
        "Mind the order: a rank that waits in `receive` does not join a collective. Receive for layer "
        "`my_layers[0]` after the collectives of all earlier layers, since the sender joins those first.",
        "Forward, for every layer: `if layer == my_layers[0]`, get the input (stage 0 with "
        "`get_activation([batch])`); gather; `if layer in my_layers`, forward; delete the whole weight; "
        "`if layer == my_layers[-1]`, pass on, or take the loss. Backward is its mirror image, with a "
        "`scatterreduce` of the gradient or of `empty_grad(layer)` in every round. Then update your shard of "
        "every layer.",
    ),
    concept="""\
Parallelisms combine: data between the pipelines, layers within each of them, shards over all. What a rank
keeps for good is a sixteenth of the model. The catch is in the meeting points. Every rank has to come to
every gather, so the stages wait for each other in communication as well as in computation.
""",
    in_practice="""\
There is no best mixture for all cases: it depends on the sizes of model and batch, on memory, and on how
fast the links are within a machine and between machines. Combined naively, as here, pipelines and sharding
do not go well together, since the weights travel again for each microbatch that passes. Lamy-Poirier (2022)
orders the schedule breadth-first, so that one gather serves many microbatches. Megatron-LM combines
pipelines with data and tensor parallelism (Narayanan et al. 2021).
""",
    sources=(BREADTH_FIRST_PIPELINE, MEGATRON_CLUSTERS, ZERO),
    praise="A whole sledge team, and all of them pull the same way.",
)
