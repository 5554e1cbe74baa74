"""vocab_parallel: a head of four blocks' work fits no stage, so every rank has a quarter of its vocabulary."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import VOCABULARY_PIPELINE
from puzzles.catalog.papers import VOCABULARY_PARALLELISM
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="A head for all",
    goal=Goal(
        "vocab_parallel",
        Size(layers=9, batches=8, ranks=4),
        time=90,
        memory=4_000_000,
        traffic=2_200_000,
        records=(
            Record(90, 4_079_616, "solutions/vocab_parallel.py", VOCABULARY_PIPELINE, 2_260_992),
            *records(
                VOCABULARY_PIPELINE,
                (82, 4_792_320, 2_260_992, "vocab_parallel_other_orders", "scores_first"),
                (86, 4_358_144, 2_260_992, "vocab_parallel_other_orders", "more_in_flight"),
            ),
        ),
        setting=Setting("vocabulary_shards", kinds=(*["block"] * 8, "head")),
        family=VOCABULARY_PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(9, 12, 4), Size(9, 8, 2)),
    statement="""\
This head compares each token with a vocabulary so large that it is as much work as four blocks: 4 steps forward and 8
backward, on weights as large as those of four blocks. Eight blocks at 1 step forward and 2 backward come before it.
However you cut these layers into four stages, the rank with the head is busy for 96 steps.

So cut the head by vocabulary. `model.load_weights(head, rank, RANKS)` loads a quarter of it. With a quarter, `forward`,
`loss` and the two halves of backward take a quarter of their time:

- `forward` needs the full input of the head, and returns the scores for a quarter of the vocabulary. Every rank needs
  this input, and only the last rank computes it.
- `loss` takes these scores. Its result knows a quarter of the vocabulary, so `backward_input` returns a part of a sum.
  `await model.allreduce(part, head - 1)` adds the parts, in 0.5 steps. The sum is the gradient for the last block.
- `backward_weight(head, inp, grad, total=sum)` returns the weight gradient of your quarter. It needs the sum, because
  a softmax divides by the scores of the full vocabulary.

Messages take no time, but they count as traffic: a rank that sends the input to three others sends it three times.
Communication overlaps with computation. Each pair of ranks has a lane for its messages; give messages tags, so that
none waits behind another.

Take 90 steps and 4.08 million elements. The all-reduce waits for all ranks before any microbatch can go back.
""",
    starter='''\
async def vocab_parallel(model: Model) -> Model:
    """A pipeline whose head is on all ranks."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last, head = model.rank, model.RANKS - 1, model.LAYERS - 1
    own = range(head * me // model.RANKS, head * (me + 1) // model.RANKS)  # blocks of this stage
    for layer in own:
        weights[layer], opt_states[layer] = model.load_weights(layer)
    weights[head], opt_states[head] = model.load_weights(head, me, model.RANKS)

    # ----- your code -----
    # Write what a rank does with a microbatch: forward of its blocks; scores, loss and
    # backward_input of its quarter of the head; backward_weight of it; backward of its blocks.
    # Then choose an order.

    # ----- end of your code -----

    for layer in (*own, head):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=(
        *("get_activation", "forward", "loss", "backward_input", "allreduce", "backward_weight", "backward"),
        *("pass_to", "receive", "update"),
    ),
    parameters=("tag", "total"),
    hints=(
        "Write four functions of a microbatch: F, the forward of your blocks; S, scores, loss and input gradient of "
        "your quarter; T, its weight gradient; B, the backward of your blocks. They take 2, 2, 1 and 4 steps.",
        "Let the input of the head go round: rank 3 passes it to rank 0, rank 0 to rank 1, rank 1 to rank 2. Each rank "
        "passes it on at the beginning of its S. So every rank sends it once at most.",
        "In S, start `sums[batch] = model.allreduce(part, head - 1)` without await, and go on. Await it in T, and on "
        "the last rank before B. All ranks must call the all-reduces in the same order.",
        "In 1F1B rank r begins 4 - r microbatches before its first backward. With these, all ranks wait at each "
        "all-reduce. Allow `model.RANKS + 1 - me` in flight. You can compute the order with a small simulation: "
        "whoever can start first does the first of T, S, F and B that can start.",
    ),
    concept="""\
A vocabulary grows faster than a layer, so the head can be more than any stage should hold. Its weight can be cut by
rows: each rank computes the scores of some token numbers, and sums over the vocabulary need one communication. The
input gradient of a part is weighted by the part's own sum of exponentials, and joined like partial softmaxes; then each
part can be corrected. So one all-reduce does it, where greatest scores, sums and gradients one after the other would
need three. Every microbatch waits there for all ranks, and this costs one more microbatch in flight on each.
""",
    in_practice="""\
Yeung et al. (2024) cut the embedding and the head in this way, and call S and T passes. Their algorithm 1 has two
all-reduces and two more microbatches in flight, algorithm 2 one of each. Megatron-LM computes the cross entropy of a
cut head within a tensor-parallel group, whose ranks wait for each other anyway.
""",
    sources=(VOCABULARY_PARALLELISM,),
    praise="All ranks share the head, and one all-reduce a microbatch is hidden.",
)
