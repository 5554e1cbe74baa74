"""local_sgd: replicas train alone for several steps, and then average their weights."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import LOCAL_SGD
from puzzles.catalog.papers import DILOCO
from puzzles.catalog.papers import LOCAL_SGD as LOCAL_SGD_PAPER
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Local SGD",
    goal=Goal(
        "local_sgd",
        Size(layers=2, batches=4, ranks=4),
        time=24,
        memory=1_400_000,
        records=(Record(24.0, 1_441_792, "solutions/local_sgd.py", LOCAL_SGD, 786_432),),
        setting=Setting("slow", steps=4, task="local"),
        family=LOCAL_SGD,
    ),
    other_sizes=(Size(3, 2, 2), Size(2, 8, 8)),
    statement="""\
Four ranks far apart: an all-reduce takes 4 steps of the clock, as long as a forward and a backward of the whole
model. There are four training steps, each with batches of its own: `get_activation([model.rank], step)`. `ddp` would
sum every gradient in every step, and take 51.5.

Here a rank may update with the gradient of its own batch alone. Its weights then are a replica of their own, and
drift away from the others'. `allreduce` of weights makes their average. The final weights have to be an average over
all ranks that covers every step.

How often do the ranks have to communicate? The fewer averages, the less time.
""",
    starter='''\
async def local_sgd(model: Model) -> Model:
    """Four steps of training on each rank alone, and an average of the weights."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    steps = model.dist.setting.steps
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # In every step forward, loss, backward and update, on this rank's batch; at the end, average the weights.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update", "allreduce"),
    parameters=("step",),
    hints=(
        "Write the training step of `basic` for one batch, and put it into a loop over the steps.",
        "Update right after each backward. The weight's gradient is gone before the next one is made.",
        "The model's input can be had again at any time. Delete it after the first forward, and call "
        "`get_activation([model.rank], step)` again before the backward of layer 0.",
        "In each step: forward through all layers; loss; for each layer from the last: backward, delete its input and "
        "the gradient it used (after layer 0 also `grad_activations[0]`), update. After all steps, for each layer: "
        "`weights[layer] = await model.allreduce(weights[layer], layer)`.",
    ),
    concept="""\
Averaging weights every H steps sends H times less than summing gradients in every step. With H = 1 and plain SGD it
is the same as averaging the gradients. With a larger H it is not: between two averages each replica follows its own
batches. How large H may be depends on the task and on the step size. The clock only shows what it saves.
""",
    in_practice="""\
Stich (2019) proves that local SGD converges as fast as mini-batch SGD on convex problems, with far fewer rounds of
communication. DiLoCo (Douillard et al. 2023) trains language models on islands that are poorly connected: each
makes many steps with AdamW, and an outer optimizer with momentum applies the averaged change. With eight workers they
report 500 times less communication.
""",
    sources=(LOCAL_SGD_PAPER, DILOCO),
    praise="Every dog walked alone, and they all came home together.",
)
