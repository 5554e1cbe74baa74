"""zb_h2: with more memory, one training step fits into the next and the bubble is gone."""

from lib import Goal, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import ZERO_BUBBLE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="No bubble between steps",
    goal=Goal(
        "zb_h2",
        Size(layers=4, batches=8, ranks=4),
        time=51,
        memory=1_800_000,
        traffic=2_200_000,
        records=records(PIPELINE, (51, 1_761_280, 2_228_224, "zb_h2_weight_gradients_last")),
        setting=Setting("parts", steps=2),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(2, 8, 2), Size(4, 12, 4)),
    statement="""\
One training step of this pipeline cannot take less than 27 steps of time: the last rank waits 3 steps for its first
batch, and then works for 24. So ZB-H1 is as fast as possible. And yet each rank is idle for 3 of 27 steps, because it
begins late or ends early.

But training has more than one step. Here are two, and no rank has to wait for the others between them: it updates
its own layer and goes on. If each rank worked for 24 steps without a pause, and began a step later than the rank
before it, the second training step would follow the first without a gap, and both would end at 51. A rank may keep
seven activations.
""",
    starter='''\
async def zb_h2(model: Model) -> Model:
    """ZB-H2: enough forwards before the first backward that no rank waits, and a next step without a gap."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last, steps = model.rank, model.RANKS - 1, model.dist.setting.steps
    weights[me], opt_states[me] = model.load_weights(me)

    # ----- your code -----
    # For each of the steps: your zb_h1 with other numbers, get_activation([batch], step), and an update.

    # ----- end of your code -----

    model.set_final_weight(me, weights[me])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward_input", "backward_weight", "pass_to", "receive", "update"),
    parameters=("step",),
    hints=(
        "Put your `zb_h1` into a loop over the steps. It takes 54 steps. Draw it: where does rank 0 wait, and for "
        "whom?",
        "A batch that leaves rank 0 goes forward through three other ranks and back through them: 6 steps. Rank 0 "
        "waits for it, unless it has enough other batches to take forward.",
        "From its own forward of batch 0 to its `backward_input`, rank 0 has time for 6 more forwards, rank 1 for "
        "4. The ranks at the end have room for as many weight gradients that wait instead.",
        "Both numbers of `zb_h1` double: `ahead = min(2 * (last - me), model.BATCHES)`, and `backward_weight` is "
        "`2 * me` batches late. After the batches of a step, update with `grad_weights.pop(me)`, and begin the "
        "next step.",
    ),
    concept="""\
The bubble of this schedule is (K-1)(F+I-2W), which is zero if the three take the same time. In a picture, the work of
a training step is a parallelogram, because each rank begins one step after the rank before it. The parallelograms of
several training steps fit together without a gap. The price is memory: 2K - 1 activations on each rank instead of K. A
single step gains nothing from it, so the puzzle has two.
""",
    in_practice="""\
Qi et al. (2024) call this ZB-H2. Its parallelogram has a catch: optimizers often begin with something that all
ranks must agree on, such as the norm of all gradients, by which they are clipped. That would stop every rank
between two steps. The paper updates at once and checks afterwards, and takes the update back in the rare case that
it was wrong.
""",
    sources=(ZERO_BUBBLE,),
    praise="No rank waits between the two steps.",
)
