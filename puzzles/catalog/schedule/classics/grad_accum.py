"""grad_accum: the training step of `basic`, one microbatch at a time."""

from lib import Goal, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import GPIPE, SCALING_TRANSLATION
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS

PUZZLE = SchedulePuzzle(
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
Train the same model on the same single rank, with less memory. Do not take all batches together: go forward and
backward with one batch, then with the next. Each gradient covers only its own batch. Add the gradients up with
`+`, and update once, when the sum covers every batch.

The time does not change, because the work is the same. But only one batch's activations are stored at a time.
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
        "Take your solution of `basic` and put a loop over the batches around everything except the update.",
        "`model.get_activation([batch])` is the input of one batch alone. At the start of each round, no "
        "activation of the previous batch should be left.",
        "Add two gradients of a layer with `+`; the sum takes no more memory than one of them. Don't keep "
        "one gradient per batch until the end.",
        "In the backward loop, if this is the first batch, `grad_weights[layer] = grad`, otherwise "
        "`grad_weights[layer] = grad_weights[layer] + grad`, where `grad, grad_activations[layer] = "
        "model.backward(...)`. After the loop over batches, update each layer once.",
    ),
    concept="""\
The gradient of a sum is the sum of the gradients. So a large batch can be cut into microbatches, and the
update after the last one is the same as if they had all been processed together. Activation memory shrinks
by the number of microbatches; weights, optimizer state and gradients do not.
""",
    in_practice="""\
PyTorch adds to `.grad` on every `backward()` until it is cleared, so gradients accumulate if the optimizer
steps only after several microbatches. Ott et al. (2018) trained that way, with batches of some 400,000 tokens
on one machine with 8 GPUs. With several devices it also saves communication: DDP's `no_sync` keeps the sum
local until the last microbatch.
""",
    sources=(SCALING_TRANSLATION, GPIPE.cited_for("for the word micro-batch")),
    praise="The same sum of gradients, with the activations of one batch at a time.",
)
