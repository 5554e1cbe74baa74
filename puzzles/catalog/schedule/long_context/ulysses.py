"""ulysses: tokens are exchanged for heads before attention, and heads for tokens after it."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import CONTEXT_PARALLEL
from puzzles.catalog.papers import ULYSSES
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Heads for tokens",
    goal=Goal(
        "ulysses",
        Size(layers=2, batches=1, ranks=4),
        time=17.0,
        memory=3_700_000,
        records=(Record(17.0, 3_670_016, "solutions/ulysses.py", CONTEXT_PARALLEL, 3_932_160),),
        setting=Setting("context", layer="attention", shares=8),
        family=CONTEXT_PARALLEL,
        traffic=3_900_000,
        steady=True,
    ),
    other_sizes=(Size(4, 1, 4), Size(2, 1, 2)),
    statement="""\
The same game as `ring_context`, but without grouped heads: keys and values are now as large as two activations, eight
times as large as there. A ring sends 10,223,616 elements from each rank.

Attention can also be split by heads, because the heads are independent: a rank with all tokens and a quarter of the
heads can attend alone. `model.heads(value, layer)` is an all-to-all that exchanges tokens for heads. The i-th of n
ranks contributes share i of n of the tokens, contiguous and with all heads, and gets all tokens with part i of n of
the heads. `model.tokens(value, layer)` does the reverse. Both take activations, key-value blocks and their gradients,
and return a handle. On a quarter of the heads, `attend` takes a quarter of the time. `keys` and `keys_backward` need
all heads, and so do `loss` and the weights.

Finish within 17 timesteps.
""",
    starter='''\
async def ulysses(model: Model) -> Model:
    """Ulysses: tokens between the layers, heads within attention."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    each = model.SHARES // model.RANKS
    mine = range(model.rank * each, (model.rank + 1) * each)  # the shares of this rank
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # await model.heads(value, layer) and await model.tokens(value, layer) exchange one for the other.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=(
        *("get_activation", "keys", "attend", "attend_backward", "keys_backward", "loss"),
        *("heads", "tokens", "allreduce", "update"),
    ),
    parameters=("shares",),
    hints=(
        "What does `attend` read? The layer's input, as queries, and the key-value block of all tokens. Both must "
        "be exchanged for heads; its result must be exchanged back.",
        "The exchange of the input does not need the keys. Start it first, compute `keys` meanwhile, then start "
        "the exchange of the block, and await both.",
        "Backward mirrors forward: exchange the gradient of the output for heads, call `attend_backward` with the "
        "queries and the block that you have kept, and exchange both results back. Then `keys_backward`.",
        "Start the `model.tokens` of the block's gradient and of the queries' gradient before you await either. Start "
        "the all-reduce of each weight gradient at once, and await all of them at the end.",
    ),
    concept="""\
A ring sends keys and values n-1 times, in forward and in backward, and their gradients too: on each of n ranks about 3
(n-1)/n of their size per layer. An exchange sends each value once: 2 (2A + kv) (n-1)/n^2 for forward and backward,
which shrinks as n grows; A is the size of an activation, kv of its keys and values. With grouped heads, where kv is an
eighth as large, the ring sends less. And there can be no more parts than heads.
""",
    in_practice="""\
DeepSpeed-Ulysses (Jacobs et al. 2023) trains with a million tokens in this way. With few key-value heads it has to
copy them, so libraries combine both: Ulysses within a machine, a ring between machines.
""",
    sources=(ULYSSES,),
    praise="Each exchange sends a value only once.",
)
