"""checkpoint: activations are deleted in forward, and computed again in backward."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import CHECKPOINTING, REVOLVE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Activation checkpointing",
    goal=Goal(
        "checkpoint",
        Size(layers=9, batches=1, ranks=1),
        time=26,
        memory=9_900_000,
        records=(
            Record(26.0, 9_961_472, "solutions/checkpoint.py", ONE_RANK, 0),
            *records(
                ONE_RANK,
                (22.0, 14_155_776, 0, "checkpoint_binomial", "eight_slots"),
                (23.0, 13_107_200, 0, "checkpoint_binomial", "seven_slots"),
                (24.0, 12_058_624, 0, "checkpoint_binomial", "six_slots"),
                (25.0, 11_010_048, 0, "checkpoint_binomial", "five_slots"),
                (27.0, 8_912_896, 0, "checkpoint_binomial", "three_slots"),
                (31.0, 7_864_320, 0, "checkpoint_binomial", "two_slots"),
                (50.0, 6_815_744, 0, "checkpoint_binomial", "one_slot"),
            ),
        ),
        setting=Setting("long"),
        family=ONE_RANK,
        steady=True,
    ),
    other_sizes=(Size(6, 2, 1), Size(12, 1, 1)),
    statement="""\
There is one rank, and one long sequence. An activation is now as large as four weights, and nine layers have nine
activations, which fill the memory.

You don't have to keep them. Delete an activation right after the forward that used it, and call `forward` again when
backward needs it: each such call takes a step. But to compute an activation again you need an earlier one to start
from. So which activations do you keep? The model's input is special: `get_activation` returns it again at any time,
and takes no time.

The target leaves room for four steps of recomputation, and for four activations and one gradient at a time.
""",
    starter='''\
def checkpoint(model: Model) -> Model:
    """Training on one rank that keeps few activations and computes the others again."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, and delete most activations; loss; backward, recomputing the missing activations; update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update"),
    hints=(
        "Keep every third activation, and compute the two between them again.",
        "Backward begins at the end, right after forward. Is there a reason to delete the last three activations?",
        "When backward comes to a layer whose input is missing, compute the full segment again: from the last input "
        "that you kept up to this layer. Those inputs stay until their backward, so each is computed only once more.",
        "Delete `activations[0]` after the first forward, and all others whose layer is below 6 and not a multiple of "
        "3. In the backward loop, if `layer not in activations`: `start = layer // 3 * 3`, get the input again if "
        "`start == 0`, and for each layer from `start` to `layer - 1` run forward. Update right after each backward, "
        "and delete the weight's gradient.",
    ),
    concept="""\
Checkpointing trades time for memory. With L layers and a checkpoint every k layers, memory holds L/k checkpoints and
one segment of k activations. The sum is smallest if k is about the square root of L, and the price is one more
forward. Keeping the last segment saves a part of that forward. If you recompute an activation more than once, you can
keep even fewer. For every number of kept activations there is an optimal plan, whose checkpoints follow binomial
coefficients.
""",
    in_practice="""\
The square root is due to Chen et al. (2016). The optimal plans were known before, for adjoint computations in physics
(Griewank and Walther 2000); they are the records here. Deep learning systems mostly recompute each transformer layer
from its input: one more forward, and memory for one layer's activations. They keep values that are small and take long
to compute.
""",
    sources=(CHECKPOINTING, REVOLVE),
    praise="Four steps of recomputation save more than a third of the memory.",
)
