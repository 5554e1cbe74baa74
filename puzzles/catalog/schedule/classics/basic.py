"""basic: one training step on one device, with activations freed as early as possible."""

from lib import Goal, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import ADAM, BACKPROPAGATION, CHECKPOINTING
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
    title="Standard training",
    goal=Goal(
        "basic",
        Size(layers=2, batches=4, ranks=1),
        time=17,
        memory=2_600_000,
        records=RECORDS[2, 4, 1],
        family=ONE_RANK,
    ),
    other_sizes=(Size(3, 2, 1), Size(5, 6, 1)),
    statement="""\
Train the model for one step on a single rank, with all batches together. Go forward through every
layer, compute the loss, go backward through every layer, and update each weight with its gradient.

Each of the four parts takes a few lines. What matters is memory: a value takes memory until you delete it; if you keep
it only in a variable, until its last use. So delete whatever will not be used again. You can't reduce the time here:
every batch has to pass through every layer twice.
""",
    starter='''\
def basic(model: Model) -> Model:
    """Standard training: all batches at once, on one rank."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    # ----- your code -----
    # Forward, loss, backward, update; delete what is no longer needed.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("forward", "loss", "backward", "update"),
    hints=(
        "Write it without any `del` first, and check that it is correct. Then ask, for each value, which "
        "operation is the last to read it.",
        "Store each activation under the number of the layer that reads it: "
        "`activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])`. Keep all of "
        "them during forward, because a layer's backward reads the same input again.",
        "The loss is the last operation to read the last layer's output: "
        "`grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])`. After it, you can delete "
        "that activation.",
        "Go backward with `for layer in reversed(range(model.LAYERS))`. `backward` returns two values: the "
        "weight's gradient, and the activation gradient for the layer before. After it, delete "
        "`activations[layer]` and `grad_activations[layer + 1]`. Then update every layer.",
    ),
    concept="""\
Backpropagation visits the layers in reverse, and each visit needs that layer's input from the forward pass.
So activations pile up during forward and are freed during backward. Memory peaks where forward ends and
backward begins. The weights and the optimizer state take memory all the time.
""",
    in_practice="""\
PyTorch's autograd keeps each layer's input until backward has used it, as you do here. Adam keeps two
numbers for each weight, so optimizer state is a large share of a real device's memory. When activations are
the larger share, activation checkpointing drops most of them and recomputes them during backward (Chen et
al. 2016).
""",
    sources=(BACKPROPAGATION, ADAM, CHECKPOINTING),
    praise="One correct training step, with every value deleted in time.",
)
