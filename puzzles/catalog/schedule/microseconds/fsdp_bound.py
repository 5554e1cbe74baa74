"""fsdp_bound: how many tokens each gather needs so that it hides behind computation."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import SHARDED
from puzzles.catalog.papers import H100, PYTORCH_FSDP, ZERO_INFINITY
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="When is FSDP bound by the network?",
    goal=Goal(
        "fsdp_bound",
        Size(layers=4, batches=32, ranks=8),
        time=9_599,
        memory=189_900_000,
        traffic=164_900_000,
        records=(Record(9_498.0, 184_549_376, "solutions/fsdp_bound.py", SHARDED, 161_480_704),),
        setting=Setting("hopper_infiniband"),
        family=SHARDED,
        steady=True,
    ),
    other_sizes=(Size(3, 16, 4), Size(6, 32, 8)),
    statement="""\
From here on the clock counts microseconds (us) on hardware like an H100. A layer has a width of 4,096, a microbatch has
2,048 tokens, and an element has two bytes.

There are eight machines with one GPU each, connected by InfiniBand. Each rank trains four microbatches: rank r takes
4r to 4r + 3. Weights are in shards and communication overlaps with computation, as in `fsdp_prefetch`.

A gather sends 14,680,064 elements, which takes 587 us, and each of its 7 hops takes 5 us. A forward of one microbatch
takes 172 us. One pass over the layers can take several microbatches: `get_activation([0, 1])` is the input of two, and
each operation on it takes twice as long. The gather takes no longer.

Memory holds two full weights besides the inputs of all layers but the first. Delete the model's input after its
forward: `get_activation` returns it again at any time.

Predict first: how many microbatches must one pass take so that the gathers hide behind computation?
""",
    answer="""\
Four. A gather takes 587 + 35 = 622 us, and a forward takes 172 us for each microbatch: 622 / 172 = 3.6. A backward
takes twice as long as a forward, and has to hide a gather and a scatter, so it needs the same number. With four
microbatches in a pass a step takes 9,498 us, of which 8,252 us are computation. With one microbatch in a pass, a step
takes 28,100 us.

The number of tokens for each gather does not depend on the width. A gather sends (n-1)/n h^2 elements at B elements per
us; a forward of T tokens takes 2 T h^2 / F us at F operations per us. So T has to be at least (n-1)/n F / (2 B),
besides the hops: 7/8 * 400,000,000 / 50,000 = 7,000 tokens.
""",
    starter='''\
async def fsdp_bound(model: Model) -> Model:
    """Fully sharded data parallelism whose gathers hide behind computation."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    each = model.BATCHES // model.RANKS
    mine = range(model.rank * each, (model.rank + 1) * each)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # As in fsdp_prefetch: gather ahead, compute, scatter. How many microbatches does a pass take?

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "allgather", "forward", "loss", "backward", "scatterreduce", "update"),
    hints=(
        "Start from your `fsdp_prefetch`. Only the number of microbatches in a pass has to change.",
        "With one microbatch in a pass each layer waits for its gather: 622 us, against 172 us of computation. How "
        "many forwards fill 622 us?",
        "`activations[0] = model.get_activation(mine)` is the input of all four microbatches. There is one pass, so "
        "each weight is gathered once in forward and once in backward.",
        "Write the two loops of `fsdp_prefetch` with `model.get_activation(mine)`. After the forward of layer 0, `del "
        "activations[0]`; before its backward, `activations[0] = model.get_activation(mine)`.",
    ),
    concept="""\
A gather moves a weight once, whatever is computed with it. The computation grows with the tokens. Above some number of
tokens the gathers are hidden; below it, they set the time. This number does not depend on the width: a wider layer has
more to send and as much more to compute. Faster GPUs raise the number, and faster networks lower it.

A rank that accumulates gradients over passes of one microbatch gathers all weights again in each pass. If memory allows
it, take more microbatches together; otherwise keep the weights between passes.
""",
    in_practice="""\
ZeRO-Infinity derives the same bound: the efficiency of a step as a function of bandwidth and of the arithmetic
intensity, which for weights is proportional to the tokens (Rajbhandari et al. 2021, section 4). PyTorch FSDP can skip
the reduce-scatter while it accumulates gradients, and can keep weights unsharded after forward (Zhao et al. 2023). The
prices here take 400 of the 989 TFLOP/s that NVIDIA (2022) states for dense bf16.
""",
    sources=(H100, ZERO_INFINITY, PYTORCH_FSDP),
    praise="Communication overlaps with computation from the second layer on.",
)
