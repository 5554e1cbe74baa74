"""straggler: equal numbers of microbatches do not take equal time."""

from fractions import Fraction

from lib import Goal, Record, Setting, Size
from lib.judging.family import DATA_PARALLEL
from puzzles.catalog.papers import LPT
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

LENGTHS = (Fraction(1),) * 4 + (Fraction(3, 4),) * 2 + (Fraction(1, 2),) * 4 + (Fraction(1, 4),) * 2

PUZZLE = SchedulePuzzle(
    title="Equal times",
    goal=Goal(
        "straggler",
        Size(layers=4, batches=12, ranks=4),
        time=62,
        memory=3_800_000,
        traffic=1_500_000,
        records=(Record(62, 3_801_088, "solutions/straggler.py", DATA_PARALLEL, 1_572_864),),
        setting=Setting("straggler", lengths=LENGTHS),
        family=DATA_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(2, 12, 4), Size(4, 12, 6)),
    statement="""\
So far all ranks were equally fast, and all microbatches equally long. In a real cluster one GPU runs hot and slows
down, and texts differ in length. An all-reduce waits for the last rank, so every rank waits for the slowest.

Four ranks train on twelve microbatches. Four of them have full length, two have 3/4 of the tokens, four have 1/2 and
two 1/4. With full length, a forward takes 2 steps in each layer and a backward 4; the time is proportional to the
length. Rank 3 computes at half the speed of the others. The only collective is `allreduce`, at 0.5 steps a call.

If each rank takes three microbatches in turn, training takes 86 steps. Distribute them so that it takes 62, with one
microbatch at a time on each rank. `model.dist.setting.lengths` has the length of each microbatch, and
`model.dist.setting.costs.slow` is `{3: 2}`.
""",
    starter='''\
async def straggler(model: Model) -> Model:
    """Data parallelism that gives every rank work for the same time."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    lengths, slow = model.dist.setting.lengths, model.dist.setting.costs.slow
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        grad_weights[layer] = model.fake_grad(layer, [])  # a zero

    # ----- your code -----
    # Which microbatches are this rank's? Take them one after the other, then sum the gradients.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "fake_grad", "allreduce", "update"),
    hints=(
        "Start from your `ddp`, with a loop over the microbatches of this rank that adds up the gradients as in "
        "`grad_accum`. Every rank makes the same all-reduces, whatever it has computed.",
        "Count in microbatches of full length: all twelve add up to 8, and the four ranks together compute 3.5 in "
        "the time of one. So the busiest rank works as long as 16/7 of them or longer. Which loads of rank 3 come "
        "close?",
        "Deal the microbatches out one by one. A long one that comes last leaves one rank behind; a short one fills a "
        "gap. Which order follows?",
        "Take the microbatches from the longest to the shortest. Give each to the rank that would end first with it: "
        "the rank with the smallest `ends[rank] + lengths[batch] * slow.get(rank, 1)`. Every rank computes the same "
        "distribution, and takes its own microbatches.",
    ),
    concept="""\
A step ends with its slowest rank. Shares should be equal in time, not in number: on rank 3 a microbatch counts twice.
The classic rule (Graham 1969) deals out the longest first, each to the rank that ends first. On equal machines its
result is never more than a third above the optimum. Here it is optimal: the busiest rank works as long as 2.5
microbatches of full length, and no other distribution is shorter.
""",
    in_practice="""\
Sequences are packed into microbatches of nearly equal length, and sorted by length before they are dealt out.
Attention grows with the square of the length, so equal tokens are not equal times either. A slow GPU is usually found
and replaced, since a synchronous step gives its slowness to thousands of others.
""",
    sources=(LPT,),
    praise="The slow rank has less work, and no distribution of these microbatches is faster.",
)
