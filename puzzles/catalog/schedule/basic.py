"""Puzzle 0, basic: one training step on one device, with the memory of activations at its lowest."""

from lib import Goal, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import ADAM, BACKPROPAGATION, CHECKPOINTING

from .puzzle import SchedulePuzzle
from .records import RECORDS

PUZZLE = SchedulePuzzle(
    number=0,
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
Train the whole model for one step on a single rank, with all batches together. Go forward through every
layer, take the loss, go backward through every layer, and update each weight with its gradient.

The four parts take a few lines each. The art is in forgetting: a value counts as memory for as long as it
stands in one of the five dictionaries, so delete what nothing will use again. Nothing can be done about the
time here; every batch has to pass through every layer twice.
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
        "Write it first without any `del`, and see that it is correct. Then ask of each value which "
        "operation is the last to read it.",
        "Keep `activations[layer]` under the number of the layer that reads it: "
        "`activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])`. Forward must "
        "keep them all, because the backward of a layer reads the same input again.",
        "The loss is the last to read the last layer's output: "
        "`grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])`, and then that activation "
        "can go.",
        "Go backward with `for layer in reversed(range(model.LAYERS))`. `backward` returns two values: the "
        "weight's gradient, and the activation gradient for the layer before. After it, delete "
        "`activations[layer]` and `grad_activations[layer + 1]`. Then update every layer.",
    ),
    concept="""\
Backpropagation visits the layers in reverse, and each visit needs what went into that layer on the way
forward. So activations pile up during forward and melt away during backward: the peak of memory lies at
the turn. Beside them stand, all the time, the weights and the state of the optimizer.
""",
    in_practice="""\
PyTorch's autograd keeps each layer's input until backward has used it, as you do here. Adam keeps two
numbers for each weight, which is why optimizer state is a large share of a real device's memory. Where
activations are the larger share, activation checkpointing drops most of them and computes them again on
the way back (Chen et al. 2016).
""",
    sources=(BACKPROPAGATION, ADAM, CHECKPOINTING),
    praise="One good dog, one whole bone.",
)
