"""local_sgd: replicas train alone for several steps, and then average their weights."""

from lib import Goal, Setting, Size
from lib.judging.family import LOCAL_SGD
from puzzles.catalog.papers import DILOCO
from puzzles.catalog.papers import LOCAL_SGD as LOCAL_SGD_PAPER
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Local SGD",
    goal=Goal(
        "local_sgd",
        Size(layers=2, batches=4, ranks=4),
        time=52,
        memory=1_500_000,
        traffic=1_500_000,
        drift=4,
        records=records(LOCAL_SGD, (52.0, 1_441_792, 1_572_864, "local_sgd_input_again")),
        setting=Setting("slow", steps=8, task="local"),
        family=LOCAL_SGD,
        steady=True,
    ),
    other_sizes=(Size(3, 2, 2), Size(2, 8, 8)),
    statement="""\
Four ranks are far apart: an all-reduce of a weight takes 4 steps of the clock, as long as a forward and a backward
through all layers. There are eight training steps, each with its own batches: `get_activation([model.rank], step)`.

Here a rank may update with the gradient of its own batch alone. Its weights then drift away from those on the other
ranks. All-reducing weights replaces them with their average. The final weights have to be an average over all ranks
that covers every step.

Few averages cost little time. But replicas drift apart, and the average of weights that are far apart is useless: here
a rank may make at most 4 updates between two averages. The target leaves time for two averages. `ddp` would take 103.5
steps.
""",
    starter='''\
async def local_sgd(model: Model) -> Model:
    """Eight steps of training on each rank alone, with an average of the weights after every fourth."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    steps = model.dist.setting.steps
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # In every step forward, loss, backward and update, on this rank's batch; average weights now and then.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update", "allreduce"),
    parameters=("step",),
    hints=(
        "Write the training step of `basic` for one batch, and put it into a loop over the steps.",
        "Update right after each backward. Then only one weight gradient exists at a time.",
        "After eight updates without an average, weights are too far apart. There is time for two averages of each "
        "layer, and at most four updates may come before each. After which steps do you average?",
        "In each step: forward through all layers; loss; for each layer from the last: backward, delete its input and "
        "the gradient it used (after layer 0 also `grad_activations[0]`), update. If `(step + 1) % 4 == 0` or the step "
        "is the last one, then for each layer: `weights[layer] = await model.allreduce(weights[layer], layer)`.",
    ),
    concept="""\
Averaging weights every H steps sends H times less than summing gradients in every step. With H = 1 and plain SGD it
is the same as averaging the gradients. With a larger H it is not: between two averages each replica follows its own
batches. How large H may be depends on the task and on the step size. The clock shows what a larger H saves, and the
limit of four updates stands for what it costs.
""",
    in_practice="""\
Stich (2019) proves that local SGD converges as fast as mini-batch SGD on convex problems, with far fewer rounds of
communication. DiLoCo (Douillard et al. 2023) trains language models on islands that are poorly connected: each
makes many steps with AdamW, and an outer optimizer with momentum applies the averaged change. With eight workers they
report 500 times less communication.
""",
    sources=(LOCAL_SGD_PAPER, DILOCO),
    praise="Two averages in eight steps, instead of an all-reduce in each.",
)
