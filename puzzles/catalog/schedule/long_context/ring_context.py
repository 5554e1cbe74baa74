"""ring_context: keys and values are passed round a ring, and each rank has early and late tokens."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import CONTEXT_PARALLEL
from puzzles.catalog.papers import RING_ATTENTION, STRIPED_ATTENTION
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="A ring in zigzag",
    goal=Goal(
        "ring_context",
        Size(layers=2, batches=1, ranks=4),
        time=15.3,
        memory=2_400_000,
        records=(Record(15.3, 2_228_224, "solutions/ring_context.py", CONTEXT_PARALLEL, 1_966_080),),
        setting=Setting("grouped", layer="attention", shares=8),
        family=CONTEXT_PARALLEL,
        traffic=1_900_000,
        steady=True,
    ),
    other_sizes=(Size(4, 1, 4), Size(2, 1, 2)),
    statement="""\
One sequence, four ranks, and every rank has all weights. Each takes two of the eight shares of tokens and computes
all layers with them. Only attention needs more: the queries of share s read the keys and values of the shares 0 to s,
and most of those are on other ranks.

Attention can go block by block. `model.keys(layer, inp, weight)` makes the key-value block of some tokens.
`model.attend(layer, inp, [block], into)` attends to one block more: `into` is what it returned for the blocks before,
or None. In backward, `model.attend_backward(layer, inp, [block], grad)` returns the gradient of the queries through
this block, and a list with the gradient of the block from these queries. Add each kind with `+`. When nothing is
missing, `model.keys_backward(layer, inp, grad_keys, weight, grad)` returns the weight gradient and the gradient for
the previous layer.

Messages overlap with computation: `pass_to` returns a handle. So pass blocks round the ring while you compute with
them. And choose the shares of each rank well, since a block that comes later than all of your tokens is masked and
costs nothing. `get_activation` gives back the model's input at any time.

Finish within 15.3 timesteps.
""",
    starter='''\
async def ring_context(model: Model) -> Model:
    """Ring attention in zigzag: key-value blocks go round, and each rank has an early and a late share."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # model.get_activation([0], shares=[...]) gets the tokens of some shares.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=(
        *("get_activation", "keys", "attend", "attend_backward", "keys_backward", "loss"),
        *("pass_to", "receive", "allreduce", "update"),
    ),
    parameters=("shares", "into", "tag"),
    hints=(
        "Count the pairs of a query and a key. Share 0 has an eighth of the keys of share 7. A rank with the shares "
        "6 and 7 does nearly half of all the work, while others wait. Which two shares give every rank the same "
        "work?",
        "Rank r takes the shares r and 7 - r. Forward: make your block, start `pass_to(after, block)`, attend to it, "
        "then receive the next one. After three hops every rank has had all blocks.",
        "In backward, pass the blocks round again. The gradient of a block follows it one hop behind: receive the "
        "sum so far, add your part, and pass it on. Give these messages a tag of their own.",
        "Keep your own part of the gradient of your block. After the last hop, the sum of the other ranks' parts "
        "arrives. Add yours, call `keys_backward`, and start the all-reduce of the weight gradient. Await it in the "
        "next layer and update at once, which frees the memory of the gradient.",
    ),
    concept="""\
A causal mask makes late tokens more work. With contiguous shares the last rank has 28 of 64 units of work and the
first rank 4. With an early and a late share each rank has 16 units, 4 in every step of the ring, so nobody waits. The
blocks are smaller than the activations, and they are sent while they are used: the sequence can be as long as all
ranks together can hold.
""",
    in_practice="""\
Ring Attention (Liu et al. 2023) passes blocks round and hides the messages behind the computation. Striped Attention
(Brandon et al. 2023) observes that the mask leaves ranks idle, and deals the tokens out in turn. In zigzag order, as
in most implementations today, each rank has an early and a late piece. Llama 3 gathers the keys of all ranks instead,
which is simpler where grouped heads make them small.
""",
    sources=(RING_ATTENTION, STRIPED_ATTENTION),
    praise="Every rank has the same work, in spite of the mask.",
)
