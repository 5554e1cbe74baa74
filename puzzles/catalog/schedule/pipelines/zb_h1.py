"""zb_h1: backward in two halves, of which only one is urgent."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import ZERO_BUBBLE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Weight gradients in the bubble",
    goal=Goal(
        "zb_h1",
        Size(layers=4, batches=8, ranks=4),
        time=27,
        memory=1_400_000,
        traffic=1_100_000,
        records=(Record(27, 1_466_368, "solutions/zb_h1.py", PIPELINE, 1_114_112),),
        setting=Setting("parts"),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(2, 8, 2), Size(4, 12, 4)),
    statement="""\
In 1F1B, ranks wait at the beginning and at the end. Is there anything useful that they could compute meanwhile?

Backward computes two gradients. The input gradient is urgent: the previous rank is waiting for it. The weight gradient
is used only by this rank's own update, so it can wait. Here each has its own call: `backward_input` and
`backward_weight` take 1 step each, as a forward does. 1F1B takes 33 steps, and each rank works for 24 of them.

Compute the weight gradients while ranks would wait, and finish in 27 steps. But a batch's activation is needed until
its `backward_weight`, and a rank may keep no more than four activations: as many as rank 0 keeps in 1F1B.
""",
    starter='''\
async def zb_h1(model: Model) -> Model:
    """ZB-H1: 1F1B with backward in two halves, the second of which may wait."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    # ----- your code -----
    # Write forward(batch), backward_input(batch) and backward_weight(batch), then the order of their calls.

    # ----- end of your code -----

    model.set_final_weight(me, weights[me])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward_input", "backward_weight", "pass_to", "receive", "update"),
    hints=(
        "Start from your `one_f_one_b` with backward in two halves, one right after the other, and pass the "
        "gradient on between the two. How many steps is that, and where do ranks still wait?",
        "The bubble at the end is longest on rank 0, which waits for the last gradient. It comes sooner if ranks 1 "
        "to 3 do not stop for weight gradients on the way. They can catch up while rank 0 has work.",
        "Rank 0 keeps four activations because it makes four forwards before its first backward. Rank 3 makes only "
        "one, so it has room for three activations that wait for their `backward_weight`. How many may wait on rank "
        "r?",
        "Let the weight gradients of rank `me` be `me` batches late: in the loop of 1F1B, after "
        "`backward_input(batch)`, call `backward_weight(batch - me)` if there is such a batch. After the loop come "
        "the last `me` of them. Pop the activation and its gradient in `backward_weight`, not before.",
    ),
    concept="""\
With times F, I and W for a forward and the two halves, 1F1B's bubble is (K-1)(F+I+W). The bubble of this schedule is
(K-1)(F+I-W), here a third as long. Every rank keeps the same number of activations: some wait for their input
gradient, the others for their weight gradient. For these sizes a solver has shown that no schedule of 27 steps needs
less, if each rank has one layer, keeps the activations of that layer itself, and computes nothing twice.
""",
    in_practice="""\
Zero-bubble pipelines split backward this way (Qi et al. 2024). In a matrix product the two halves cost the same,
so the split is free; an automatic differentiation library has to be told to compute them separately. The paper
also searches for schedules automatically, since real forwards and halves do not all take the same time.
""",
    sources=(ZERO_BUBBLE,),
    praise="A third of 1F1B's bubble, in the same memory.",
)
