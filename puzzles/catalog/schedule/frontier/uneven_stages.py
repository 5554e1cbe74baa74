"""uneven_stages: a head is more work than a block, so stages with as many layers take unequal times."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import LLAMA_3, VOCABULARY_PARALLELISM
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="The head is heavy",
    goal=Goal(
        "uneven_stages",
        Size(layers=10, batches=8, ranks=4),
        time=90,
        memory=4_300_000,
        traffic=1_100_000,
        records=(
            Record(90, 4_325_376, "solutions/uneven_stages.py", PIPELINE, 1_114_112),
            *records(
                PIPELINE,
                (87, 5_636_096, 1_114_112, "uneven_stages_other_counts", "less_time"),
                (93, 3_670_016, 1_114_112, "uneven_stages_other_counts", "less_memory"),
            ),
        ),
        setting=Setting("vocabulary", kinds=("embedding", *["block"] * 8, "head")),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(10, 4, 4), Size(10, 12, 4)),
    statement="""\
A language model begins with an embedding and ends with a head. The embedding looks up token numbers, which takes no
time; its `backward` returns a weight gradient and None. The head compares each token with the full vocabulary: here
that is as much work as two blocks, 2 steps forward and 4 backward. Both have twice a block's weights. Between them are
eight blocks, at 1 step forward and 2 backward.

Four ranks make a pipeline of these ten layers, with eight microbatches. A stage has consecutive layers. With two or
three layers on each rank, 1F1B takes 114 steps: all ranks wait for the last rank, which has the head.

Cut the layers so that 1F1B takes 90 steps. The first rank keeps the most microbatches, so it should not have the most
layers.
""",
    starter='''\
async def uneven_stages(model: Model) -> Model:
    """1F1B with stages that take equally long."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    counts = (3, 2, 2, 3)  # layers of each rank
    me, last = model.rank, model.RANKS - 1
    mine = range(sum(counts[:me]), sum(counts[: me + 1]))
    for layer in mine:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Write forward(batch) and backward(batch) for all layers of a stage, then 1F1B.

    # ----- end of your code -----

    for layer in mine:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    hints=(
        "Start from your `one_f_one_b`, and let `forward` and `backward` loop over the layers in `mine`. Several "
        "layers and batches now have activations at the same time, so use both as the key.",
        "How many steps does each rank work for one microbatch? With (3, 2, 2, 3), rank 0 has two blocks, which is 6 "
        "steps, and rank 3 has two blocks and the head, which is 12. The slowest rank sets the pace.",
        "The blocks and the head are 30 steps for each microbatch, so some rank has at least 9. Several cuts reach "
        "9. They differ in the time to fill and drain the pipeline, and in what rank 0 keeps.",
        "Three layers on each of the first three ranks, and the head alone. You need not keep token numbers: "
        "`get_activation` takes no time, so it can be called again before the backward of layer 0.",
    ),
    concept="""\
A pipeline is as fast as its slowest stage, so stages are cut by time and not by number of layers. Two things decide
the cut. The rank with the head should have few blocks. In 1F1B rank r of K keeps the activations of K - r
microbatches, so to save memory the first ranks should have few layers. Of all 84 cuts of these layers, (4, 3, 2, 1) is
the fastest, 87 steps, and needs 30% more memory than (3, 3, 3, 1); (2, 3, 3, 2) needs 15% less and takes 93.
""",
    in_practice="""\
Llama 3 405B has one layer fewer on the first stage and on the last, since these have the embedding and the head
(Dubey et al. 2024). With vocabularies of 128,000 tokens and more, the head of a small model is worth many layers, and
no cut is even; then the head itself is cut over the ranks (Yeung et al. 2024).
""",
    sources=(LLAMA_3, VOCABULARY_PARALLELISM),
    praise="Fewer layers on the rank with the head, and no rank waits for it.",
)
