"""seq_pipeline: sequences go through a pipeline in shares of their tokens."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import SEQ_1F1B, TERAPIPE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

LONGER = "solutions/records/seq_pipeline_longer_first_shares.py"

PUZZLE = SchedulePuzzle(
    title="Sequences in shares",
    goal=Goal(
        "seq_pipeline",
        Size(layers=4, batches=2, ranks=4),
        time=85.5,
        memory=7_000_000,
        records=(
            Record(85.5, 6_815_744, "solutions/seq_pipeline.py", PIPELINE, 4_194_304),
            Record(82.4, 7_077_888, f"{LONGER}: long_second", PIPELINE, 4_194_304),
            Record(82.2, 7_340_032, f"{LONGER}: seven_shares", PIPELINE, 4_194_304),
            Record(79.8, 7_602_176, f"{LONGER}: six_shares", PIPELINE, 4_194_304),
        ),
        setting=Setting("sequences", layer="attention", shares=8),
        family=PIPELINE,
        traffic=4_100_000,
        steady=True,
    ),
    other_sizes=(Size(4, 4, 4), Size(2, 2, 2)),
    statement="""\
Two long sequences are too few for four stages: 1F1B with one sequence at a time takes 144 steps, and each rank works
for 57.6 of them. But causal attention can go through a sequence piece by piece. Here a sequence is eight shares of
tokens (`model.SHARES`), and share s attends only to the keys and values of the shares 0 to s.

A layer of attention has two calls. `model.block_forward(layer, inp, weight, past)` takes the tokens of some shares,
and a list of the key-value blocks of all earlier ones. It returns the next layer's input and the key-value block of
its own tokens. `model.block_backward(layer, inp, keys, grad, weight, grad_keys)` takes all key-value blocks up to its
own, and the gradients of these from all later shares. It returns the weight gradient, the gradient for the previous
layer, and a list with the gradients of all earlier blocks, for the next call.

Finish within 85.5 timesteps.
""",
    starter='''\
async def seq_pipeline(model: Model) -> Model:
    """Seq1F1B: each share of a sequence is a microbatch, and they come back in the opposite order."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    # ----- your code -----
    # get_activation([batch], shares=[share]) gets the tokens of one share.
    # activations also holds key-value blocks, and grad_activations their gradients.

    # ----- end of your code -----

    model.set_final_weight(me, weights[me])
    return model
''',
    calls=("get_activation", "block_forward", "block_backward", "loss", "pass_to", "receive", "update"),
    parameters=("shares", "past", "grad_keys"),
    hints=(
        "Begin with one rank and one sequence: eight `block_forward`, then eight `block_backward`. In which order "
        "must the shares come back? The keys of share 3 are read by the queries of shares 3 to 7.",
        "Forward goes through the shares in order, sequence by sequence. Backward goes through the sequences in "
        "the same order, but through the shares of each from the last to the first.",
        "Let `there` and `back` list the (sequence, share) pairs in these two orders. Then it is 1F1B: first some "
        "forwards, then in turns one forward and one backward. How many come first? The last rank can begin backward "
        "when it has all shares of a sequence, and each rank before it makes one more forward.",
        "Rank r begins with 3 - r + 7 forwards. `activations['keys', batch, share]` and `grad_activations['keys', "
        "batch, share]` are good places for key-value blocks and their gradients. Delete the block of a share when "
        "its backward is done.",
    ),
    concept="""\
With k shares a sequence, a pipeline has k times as many microbatches, each with a k-th of the tokens. The bubble and
the memory of activations shrink. The memory of keys and values does not: the blocks of a sequence stay until its
shares have come back. Later shares attend to more keys, so equal shares are not equal work. With shares of two for the
first tokens, (2, 2, 1, 1, 1, 1), the same order takes 79.8 steps and 7,602,176 elements.
""",
    in_practice="""\
TeraPipe (Li et al. 2021) cut sequences into pieces of equal time for GPipe's order. Seq1F1B (Sun et al. 2024) does so
for 1F1B, and for zero bubble pipelines. With causal attention, all of them need backward in reverse order of the
tokens.
""",
    sources=(TERAPIPE, SEQ_1F1B),
    praise="Shares of the tokens fill the pipeline as microbatches do.",
)
