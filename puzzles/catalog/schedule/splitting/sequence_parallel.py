"""sequence_parallel: tensor parallelism whose activations are split by tokens between the layers."""

from lib import Goal, Setting, Size
from lib.judging.family import TENSOR_PARALLEL
from puzzles.catalog.papers import SEQUENCE_PARALLELISM
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Sequence parallelism",
    goal=Goal(
        "sequence_parallel",
        Size(layers=8, batches=1, ranks=4),
        time=13,
        memory=4_700_000,
        traffic=29_000_000,
        records=records(
            TENSOR_PARALLEL,
            (12.0, 9_437_184, 23_592_960, "sequence_parallel_whole_activations"),
            (12.9, 4_718_592, 28_311_552, "sequence_parallel_last_stays_whole"),
        ),
        setting=Setting("long_quarters", layer="block"),
        family=TENSOR_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(8, 1, 2), Size(6, 2, 4)),
    statement="""\
Tensor parallelism splits weights and work, but not activations: after each all-reduce, all ranks keep the same full
activation for backward. Here sequences are long, and an activation is four times as large as a full weight. The
schedule of `tensor_parallel` keeps eight of them.

An all-reduce is a reduce-scatter and an all-gather. Stop between the two: after `scatterreduce`, a rank has the sum
for a quarter of the *tokens*, and keeps only that. `allgather` restores the full activation before each forward, and
again before each backward. Each of the two collectives takes half the time of an all-reduce. No rank has to keep the
model's input: `get_activation` returns it again at any time, and takes no time. Halve the memory, and take little more
time.
""",
    starter='''\
async def sequence_parallel(model: Model) -> Model:
    """Sequence parallelism: between the layers, every rank keeps its share of the tokens."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # As in tensor_parallel, but keep shares of the tokens, and gather them when a layer needs them.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "allgather", "forward", "scatterreduce", "loss", "backward", "update"),
    hints=(
        "Start from your `tensor_parallel`. Replace each all-reduce by a `scatterreduce`, and gather right before "
        "the next forward or backward that needs the full value.",
        "The output of the last layer need not be gathered: the loss of a token needs that token only, so `loss` "
        "works on a share of the tokens, and yields the gradient for that share.",
        "`backward` needs two full values: the layer's input and the gradient of its output. Gather both right "
        "before it, and keep neither after it.",
        "Write `async def full_input(layer)`: for layer 0 it returns `model.get_activation(range(model.BATCHES))`, "
        "for the others `await model.allgather(activations[layer], layer)`. Forward: `part = model.forward(layer, "
        "await full_input(layer), weights[layer])`, then `activations[layer + 1] = await model.scatterreduce(part, "
        "layer + 1)`. Backward: gather input and gradient, delete their shares, `backward`, and, unless `layer` is "
        "0, `scatterreduce` the part for `layer - 1`.",
    ),
    concept="""\
Each rank keeps only its share of the tokens. The traffic stays nearly the same, because an all-reduce moves as much as
a reduce-scatter and an all-gather together. Only the second gather of each input, in backward, is extra: 1.05 steps
here. Activations take most of the memory of long sequences, and they are divided by the number of ranks.
""",
    in_practice="""\
Korthikanti et al. (2022) introduced this for the layer norms and dropouts between the blocks, which tensor parallelism
computes on every rank again, and keep only a share of each block's input, as here. In Megatron Core it is the option
`sequence_parallel`. Ring attention also splits the sequence inside attention.
""",
    sources=(SEQUENCE_PARALLELISM,),
    praise="Every rank keeps a quarter of each activation, and the step takes little longer.",
)
