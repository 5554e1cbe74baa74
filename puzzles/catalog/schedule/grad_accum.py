"""Puzzle 1, grad_accum: the training step of puzzle 0, one microbatch at a time."""

from lib import Goal, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import GPIPE, SCALING_TRANSLATION

from .puzzle import SchedulePuzzle
from .records import RECORDS

PUZZLE = SchedulePuzzle(
    number=1,
    title="Gradient accumulation",
    goal=Goal(
        "grad_accum",
        Size(layers=2, batches=4, ranks=1),
        time=17,
        memory=2_000_000,
        records=RECORDS[2, 4, 1],
        family=ONE_RANK,
    ),
    other_sizes=(Size(3, 6, 1), Size(4, 2, 1)),
    statement="""\
The same model on the same single rank, with less memory. Instead of all batches together, take one batch
forward and backward by itself, then the next. Each gives a gradient that knows only its own batch; add the
gradients up with `+`, and update once, when the sum holds every batch.

The time stays what it was, because the work is the same. Only as much is remembered as one batch needs.
""",
    starter='''\
def grad_accum(model: Model) -> Model:
    """Gradient accumulation: one batch at a time, on one rank."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # For each batch: load its input, forward, loss, backward, add its gradients. Then update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update"),
    hints=(
        "Take your solution of `basic` and put a loop over the batches around all of it but the update.",
        "`model.get_activation([batch])` is the input of one batch alone. When the loop comes round, no "
        "activation of the batch before should be left.",
        "Two gradients of one layer are added with `+`, and the sum takes no more memory than one of them. "
        "Do not keep one gradient for each batch until the end.",
        "In the backward loop: if this is the first batch, `grad_weights[layer] = grad`, and otherwise "
        "`grad_weights[layer] = grad_weights[layer] + grad`, where `grad, grad_activations[layer] = "
        "model.backward(...)`. After the loop over batches, update each layer once.",
    ),
    concept="""\
The gradient of a sum is the sum of the gradients. A large batch can therefore be cut into microbatches,
and the update after the last of them is the same as if they had all been there at once. Activations
shrink by the number of microbatches; weights, optimizer state and gradients do not.
""",
    in_practice="""\
PyTorch adds to `.grad` on every `backward()` until it is cleared, so accumulation is what happens when the
optimizer steps only after several microbatches. Ott et al. (2018) trained that way with batches of some
400,000 tokens on one machine with 8 GPUs. With several devices it saves communication too: DDP's `no_sync`
keeps the sum local until the last microbatch.
""",
    sources=(SCALING_TRANSLATION, GPIPE.cited_for("for the word micro-batch")),
    praise="Small bites, the same bone, and crumbs for nobody.",
)
