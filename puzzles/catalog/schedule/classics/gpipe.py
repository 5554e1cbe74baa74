"""gpipe: pipeline stages fed one microbatch at a time."""

from lib import Goal, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import GPIPE, MEGATRON_CLUSTERS
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="GPipe schedule",
    goal=Goal(
        "gpipe",
        Size(layers=8, batches=4, ranks=4),
        time=33,
        memory=4_100_000,
        traffic=2_000_000,
        records=RECORDS[8, 4, 4],
        family=PIPELINE,
        decides="star",
    ),
    other_sizes=(Size(6, 6, 3), Size(4, 4, 2)),
    statement="""\
In `pipeline`, three ranks out of four were always waiting. Pass on smaller pieces: take each batch through the
pipeline by itself, so that rank 1 can work on batch 0 while rank 0 works on batch 1.

First all batches go forward, one after the other. Then all go backward. Then each rank adds up the gradients
of its layers and updates the weights. The bubble, which is the time that ranks wait, gets smaller. The peak
memory grows, because activations of all batches are stored when backward begins.
""",
    starter='''\
async def gpipe(model: Model) -> Model:
    """GPipe: the stages of a pipeline, fed one batch at a time."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # All batches forward, one by one; all backward, one by one; add up and update.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    hints=(
        "Split `pipeline` into its forward half and its backward half, and put a loop over the batches "
        "around each of them.",
        "Several batches are now in flight at the same time, so give each its own keys: "
        "`activations[layer, batch]`, `grad_activations[layer, batch]`, `grad_weights[layer, batch]`.",
        "Messages from one rank to another arrive in the order in which they were sent. If all ranks process "
        "the batches in the same order, the k-th message that you receive is batch k.",
        "The last rank can compute the loss of a batch when that batch's turn to go backward comes. After the "
        "two loops, for each of your layers add `grad_weights[layer, batch]` over all batches with `+`, "
        "deleting the parts, and update with the sum.",
    ),
    concept="""\
With M microbatches and K equal stages, a pipeline that runs all forward and then all backward is idle for
(K - 1) / (M + K - 1) of the time, apart from communication: three sevenths here, instead of three quarters.
More microbatches make the bubble smaller. The price is that the activations of all M are stored before the
first goes backward.
""",
    in_practice="""\
GPipe (Huang et al. 2019) introduced this schedule. It keeps only the inputs of each stage and recomputes the
rest during backward. PipeDream's order alternates one forward and one backward (1F1B), which frees
activations earlier. Megatron-LM uses a form of 1F1B that keeps the weights consistent, and interleaves
several small stages on each device to shrink the bubble further (Narayanan et al. 2021).
""",
    sources=(GPIPE, MEGATRON_CLUSTERS),
    praise="Four microbatches shrink the bubble from 75% to 43%.",
)
