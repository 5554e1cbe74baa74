"""two_ways: microbatches enter a pipeline at both ends, and pairs of a forward and a backward save time."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import SHARDED_PIPELINE
from puzzles.catalog.papers import DEEPSEEK_V3, ZERO_BUBBLE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="From both ends",
    goal=Goal(
        "two_ways",
        Size(layers=4, batches=8, ranks=4),
        time=22,
        memory=2_200_000,
        traffic=1_600_000,
        records=(Record(22, 2_236_416, "solutions/two_ways.py", SHARDED_PIPELINE, 1_638_400),),
        setting=Setting("pairs"),
        family=SHARDED_PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(4, 12, 4), Size(6, 12, 6)),
    statement="""\
A GPU can compute a forward of one microbatch and a backward of another at once: while one sends, the other multiplies.
Here such a pair takes 2 steps, no more than the backward alone. `model.forward_backward((layer, inp, weight),
(layer, inp, grad, weight))` computes both, and returns what `forward` returns and what `backward` returns. Alone, a
forward takes 1 step, and so does each half of a backward. Messages take no time.

A pipeline in one direction has few pairs: 1F1B starts and ends with work of one kind, and takes 26 steps with pairs,
27 as ZB-H1. So let half of the microbatches enter at rank 0 and the other half at rank 3. Rank r has layer r for the
first half, and layer 3 - r for the second. Each layer then is on two ranks. Their gradients must be added before the
update, and both ranks end with the new weight. Take 22 steps.
""",
    starter='''\
async def two_ways(model: Model) -> Model:
    """DualPipe: two pipelines in opposite directions, whose forwards and backwards run in pairs."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last, half = model.rank, model.RANKS - 1, model.BATCHES // 2
    other = last - me  # the rank with the same two layers
    weights[me], opt_states[me] = model.load_weights(me)
    weights[other], _ = model.load_weights(other)

    # ----- your code -----
    # Forwards of both ways; pairs of a forward of one way and a backward of the other;
    # the last backwards in halves; the sum of the gradients.

    # ----- end of your code -----

    model.set_final_weight(me, weights[me])
    return model
''',
    calls=(
        *("get_activation", "forward", "loss", "forward_backward", "backward", "backward_input", "backward_weight"),
        *("pass_to", "receive", "update"),
    ),
    parameters=("tag",),
    hints=(
        "Give each message a tag: `pass_to(rank, value, tag=batch)`. Two neighbours exchange forwards of one way and "
        "backwards of the other, and these are of different microbatches.",
        "Call the way that enters at this end way 0, the other way 1. Rank 0 and rank 3 have one rank between them and "
        "the middle, ranks 1 and 2 have none. Begin with F0 twice for each rank between this one and the middle; then "
        "F0 and F1 in turn, once more than there are ranks between this one and its end. Call `forward` for each.",
        "On rank 0: F0 F0 F0 F1 I1 W1 F1 (F0 B1) (F1 B0) B1 (F1 B0), then B1 I0 W0 I0 W0. In brackets: a pair, "
        "with `forward_backward`. B is a whole `backward`, I and W are its halves.",
        "On rank 1: F0 F1 F0 F1, then F0 and B1 alone, then (F1 B0) (F0 B1) (F1 B0), and at the end B1 B0 I1 I0 W1 W0. "
        "Ranks 2 and 3 do the same from the other end. At the end rank r sends its gradient of layer 3 - r to rank "
        "3 - r with `pass_to`, adds the one it gets, updates layer r, and the two exchange the new weights.",
    ),
    concept="""\
Pairs hide the forward behind a backward, but a pair needs both at once. In one direction a rank has both only in the
middle of the step. With a second pipeline in the other direction, the backwards of one way meet the forwards of the
other nearly from the start. The price is a second copy of the weights, and the sum of their gradients. Data
parallelism with pairs would be faster still, and needs all weights on each rank.
""",
    in_practice="""\
DualPipe (DeepSeek-AI 2024, section 3.2.1) trains DeepSeek-V3 this way: a forward and a backward are cut into attention,
all-to-all, MLP and all-to-all, and the communication of one runs under the computation of the other. Two copies of the
weights cost little there, because experts are spread over many GPUs. DualPipeV keeps one copy: the way back is on the
same ranks, as in ZB-V.
""",
    sources=(DEEPSEEK_V3, ZERO_BUBBLE),
    praise="Nearly every forward is hidden under a backward.",
)
