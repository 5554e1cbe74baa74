"""v_half: a V of layers with little more than half of 1F1B's activations."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import CONTROLLABLE_MEMORY
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Half the memory",
    goal=Goal(
        "v_half",
        Size(layers=16, batches=8, ranks=8),
        time=65,
        memory=3_100_000,
        traffic=2_200_000,
        records=(Record(65, 3_022_848, "solutions/v_half.py", PIPELINE, 2_228_224),),
        setting=Setting("parts"),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(8, 8, 4), Size(16, 16, 8)),
    statement="""\
In `zb_v` a V of layers had no bubble, with as many activations as 1F1B. Here eight ranks have sixteen layers in a V:
rank r has the layers r and 15 - r. 1F1B with two layers on a rank takes 90 steps, and rank 0 keeps sixteen activations.
A forward, `backward_input` and `backward_weight` take 1 step each, so ranks work 48 steps.

How few activations are enough? A batch returns early to a rank at the turn of the V. On rank 0, an activation of the
first layer waits long, and one of the last layer hardly at all: together the two layers keep as many activations as on
any other rank. A lower cap costs time.

Keep no more than ten activations on each rank, and finish in 65 steps.
""",
    starter='''\
async def v_half(model: Model) -> Model:
    """V-Half: a V of layers, and at most ten activations on each rank."""
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
    # Take the three actions from your zb_v. Then find an order: by hand, or by a function that plans it.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward_input", "backward_weight", "pass_to", "receive", "update"),
    parameters=("tag",),
    hints=(
        "Start from your `zb_v`: only the order of the actions is new. An activation counts from its `forward` to its "
        "`backward_weight`.",
        "You need not write the order down. All actions take 1 step, so a function can play the whole pipeline in "
        "turns: in each turn every rank does one thing that it can do. Every rank calls that function and takes its "
        "own part.",
        "An action is possible if what it needs was made in an earlier turn, and a forward only if the rank keeps "
        "fewer than ten activations. What should a rank prefer, if it can do several things? Whatever others wait for.",
        "Prefer, in this order: the input gradient of the layer `down`, the forward `up`, the input gradient `up`, the "
        "forward `down`, the weight gradient `up`, the weight gradient `down`. In other sizes the ranks may block each "
        "other; then the first ranks should leave room for the way up before they begin a forward `down`.",
    ),
    concept="""\
What a rank of a V keeps is the same on all ranks, so one number, the cap, sets the memory of the pipeline. With times
of F = I = W and K ranks, 2K activations of one layer leave no bubble (ZB-V); about half of them, 2 floor((K + 2) / 2),
are V-Half, and 2 floor((K + 4) / 3) are V-Min. So the cap trades memory for time. 1F1B is worse in both: it is slower
than V-Half, and keeps more.
""",
    in_practice="""\
Qi et al. (2024) build such schedules from repeating blocks. Memory that is saved allows larger microbatches, or less
recomputation. `puzzles solve --ranks 8 --microbatches 8 --placement V --memory 10` searches for orders under a cap.
""",
    sources=(CONTROLLABLE_MEMORY,),
    praise="Ten activations where 1F1B keeps sixteen.",
)
