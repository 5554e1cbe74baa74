"""one_f_one_b: a pipeline that goes back as soon as it can, and so keeps few activations."""

from lib import Goal, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import MEGATRON_CLUSTERS, PIPEDREAM
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="One forward, one backward",
    goal=Goal(
        "one_f_one_b",
        Size(layers=4, batches=8, ranks=4),
        time=33,
        memory=1_400_000,
        traffic=1_100_000,
        records=records(PIPELINE, (33, 1_310_720, 1_114_112, "one_f_one_b_input_again")),
        setting=Setting("stages"),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(2, 8, 2), Size(4, 12, 4)),
    statement="""\
In `gpipe`, more batches made the bubble smaller, but every rank kept the activations of all batches. With 1,000
batches it would keep 1,000 activations. But the first batch reaches the loss long before the last one begins: its
backward could run, and free its activations, while other batches still go forward.

Here each rank has one layer, and there are 8 batches. A forward takes 1 step, a backward 2, and messages take no
time. GPipe's order takes 33 steps. Find an order that takes no longer, in which no rank ever keeps the activations
of more than 4 batches.
""",
    starter='''\
async def one_f_one_b(model: Model) -> Model:
    """1F1B: a pipeline in which each rank goes back as soon as it can."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    # ----- your code -----
    # Write forward(batch) and backward(batch). Then: in which order does this rank call them?

    # ----- end of your code -----

    model.set_final_weight(me, weights[me])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    hints=(
        "Begin with the last rank. It has nothing to wait for: a batch that has come forward can go back at once.",
        "Rank 2 sends a batch to rank 3 and gets its gradient 3 steps later. In that time it can take one more batch "
        "forward. How many can rank 1 take forward before its first gradient comes? How many can rank 0?",
        "So a rank first takes as many batches forward as there are ranks after it. From then on it alternates: "
        "one forward, one backward. At the end only backwards are left.",
        "With `ahead = min(last - me, model.BATCHES)`, call `forward` for the batches below `ahead`. Then, for "
        "each `batch`, call `forward(batch + ahead)` if there is such a batch, and `backward(batch)`. In "
        "`backward`, `pop` what it uses, and add each gradient to the sum right away. Update once, at the end.",
    ),
    concept="""\
GPipe and 1F1B have the same bubble: with M batches and K ranks both take (M + K - 1) times a forward and a
backward. What differs is the number of batches in flight. In 1F1B, rank r has at most K - r of them, however many
batches there are. So with more batches the bubble shrinks, and the memory stays the same.
""",
    in_practice="""\
PipeDream introduced the order, without waiting for all batches before an update (Narayanan et al. 2019). Megatron-LM
uses it with one update at the end, as here, and calls it the default schedule (Narayanan et al. 2021). PyTorch has it
as `Schedule1F1B`. The next puzzles shrink the bubble.
""",
    sources=(PIPEDREAM, MEGATRON_CLUSTERS),
    praise="GPipe's time, and never more than four activations on a rank.",
)
