"""zb_v: layers that go down the ranks and up again, for no bubble at balanced memory."""

from lib import Goal, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import CONTROLLABLE_MEMORY, ZERO_BUBBLE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="A V of layers",
    goal=Goal(
        "zb_v",
        Size(layers=8, batches=8, ranks=4),
        time=51,
        memory=2_700_000,
        traffic=2_200_000,
        records=records(PIPELINE, (51, 2_654_208, 2_228_224, "zb_v_timetable")),
        setting=Setting("parts"),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(4, 8, 2), Size(8, 12, 4)),
    statement="""\
ZB-H2 has no bubble between steps, but keeps nearly twice the activations of 1F1B. Each batch is away from rank 0 for a
long time: every other rank processes it twice before it returns.

Lay the layers in a V. Rank r has layer r on the way down and layer 7 - r on the way up. Rank 3 has layers 3 and 4,
at the turn; rank 0 has the first layer and the last, so it computes the loss and begins the backward itself.
A forward, `backward_input` and `backward_weight` take 1 step each. Each rank works 48 steps, and rank 3 cannot begin
before step 3, so no schedule takes less than 51 steps. Take 51 with eight activations on each rank, as many as 1F1B
keeps on rank 0 if a stage has two layers.
""",
    starter='''\
async def zb_v(model: Model) -> Model:
    """ZB-V: a layer on the way down and one on the way up on each rank, and backward in two halves."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, ranks = model.rank, model.RANKS
    down, up = my_layers = me, model.LAYERS - 1 - me
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def owner(layer):
        """The rank of a layer."""
        return min(layer, model.LAYERS - 1 - layer)

    def tag(layer, batch):
        """The tag of the messages to a layer about a batch."""
        return layer * model.BATCHES + batch

    # ----- your code -----
    # Three actions for each of the two layers. At the turn of the V a rank keeps what it would send.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward_input", "backward_weight", "pass_to", "receive", "update"),
    parameters=("tag",),
    hints=(
        "Write `forward(layer, batch)`, `backward_input(layer, batch)` and `backward_weight(layer, batch)` first. "
        "A value for the layer after or before goes to `owner(...)` of that layer; if that is this rank, store it, "
        "and do not receive it.",
        "Batch 0 needs 8 steps down and up the V. Meanwhile rank 0 can begin 7 batches, rank 1 has time for 5 "
        "before the first one comes back up, and rank 3 passes each batch to itself.",
        "After that, the pattern of every rank repeats with 6 steps: F, I and W of the layer `down`, then F, I and "
        "W of the layer `up`. Between the start and the pattern, the layer `up` catches up; at the end, the layer "
        "`down` does.",
        "Rank `me` of `ranks`, always with the next batch of each action: F `down` 2 (ranks - me) - 1 times; (F "
        "`up`, F `down`) `me` times; (F `up`, I `up`, W `up`) ranks - me times; then the pattern until no F `up` "
        "is left, without F `down` once there is none; (I `down`, I `up`) `me` times; (I `down`, W `down`) ranks - "
        "me times; and all W that are left.",
    ),
    concept="""\
Where layers lie decides what waits for what. In a V, activations of the early layers live long and activations of the
late layers live briefly. Each rank has one layer of each kind, so all ranks keep 2K chunks of half the size, as much
memory as in 1F1B. Backward begins on rank 0, where 1F1B's bubble was largest. A single training step takes K-1 steps
more than the work of a rank, and several training steps follow each other without a gap, as in ZB-H2.
""",
    in_practice="""\
ZB-V is the last schedule of the zero-bubble paper (Qi et al. 2024). In the same year, most of its authors published a
family of such V schedules ("Pipeline Parallelism with Controllable Memory"). They trade memory for time, down to a
third of 1F1B's activations. PyTorch has this order as `ScheduleZBVZeroBubble`, and remarks that the bubble is zero
only if F, I and W take the same time.
""",
    sources=(ZERO_BUBBLE, CONTROLLABLE_MEMORY),
    praise="No bubble after the start, with the memory of 1F1B.",
)
