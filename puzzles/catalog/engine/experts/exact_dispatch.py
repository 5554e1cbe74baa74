"""ExactDispatch: dropless dispatch without padding, by one-sided puts."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import MEGABLOCKS, OPENSHMEM, SWITCH

PUZZLE = EnginePuzzle(
    slug="ExactDispatch",
    title="No padding, and no dropped token",
    targets={
        "sent": 1_056,
        "messages": 4,
        "receives": 0,
        "collectives": 1,
        "barriers": 2,
        "flops": 42_304,
        "weights": 11_008,
    },
    arithmetic="""\
Number of tokens that each device sends to each expert, in the shown data:

device 0: 3 0 5 0; device 1: 4 2 0 2; device 2: 1 5 2 0; device 3: 2 2 3 1.

Device 2 sends the most: it sends 6 of its own rows to other devices, and returns 8 rows that came from others
(5 + 0 + 3): 14 rows of 64 B, 896 B. The table of counts is gathered, 4 numbers from each. A whole number costs
8 B: 3 x 32 = 96 B. No device sends more than 4 messages: one to each device for which it has rows, and one to each for
which it has results. Each has 8 B for its place and 8 B for its second dimension, 64 B. Together 1,056 B.

Buffers that drop no token would need capacity 5: 2 x 3/4 x 4 x 5 x 64 = 1,920 B.

Experts 0 and 2 have the most work: 10 rows, 40,960 flops, and the router 1,024; softmax and gates take 320, as in
SwitchDispatch: 42,304. Weights as in SwitchDispatch, 8,448 B; an inbox for all 32 tokens, 2,048 B, and 8 rows for the
results, 512 B: 11,008 B.
""",
    statement="""\
Experts and router are the same as in SwitchDispatch, but there is no capacity: every token is processed, and no padding
is sent. The output of a token is x + p_i(x) E_i(x), for its likeliest expert i.

First, the devices tell each other how many rows they have for each expert (int32 is enough). Then every device can
compute where its rows belong in the other devices' memory, and puts them there. `self.symmetric(shape)` allocates the
same buffer of zeros on every device. `self.send_async(rows, place, device)` writes `rows` into the buffer of another
`device`: `place` is a view of your own buffer, and the rows go to the same position in the other one. They are
guaranteed to be there after the next `self.barrier()`. Until then no device may read that position, and no device may
put rows where another device still has to read.

The other device does not call `receive`, which is not allowed here. You may use two barriers and one collective. A
device cannot put rows on itself, but it can copy them. Create the buffers in __init__: an inbox for as many rows as
all devices have tokens (all may choose your expert), and one for the results for your own tokens.

`forward` gets your tokens, (8, 16), and returns their outputs. It is called again with other tokens.

`params` holds 'router/weights' (16, 4) and, for each expert i, 'expert_i/w0' (16, 64) and 'expert_i/w1' (64, 16).
`tokens` is the number of tokens on a device.
""",
    starter='''\
class ExactDispatch(ShardedEngine):
    """No padding, and no token lost."""

    def __init__(self, model_dim, hidden_dim, tokens):
        """Make room for the router and your expert, and the symmetric buffers. tokens: of one device."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the router and your expert out of params: it is valid only during this call."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your tokens, (8, 16); you may write into it. Returns (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Sort your tokens by expert. Rows for the same expert are then one slice, and one message.",
        (
            "Gather all counts, `counts[source, expert]`. In the inbox of an expert the rows of device 0 come first, "
            "then the rows of device 1. Where do your rows start?"
        ),
        (
            "`at = counts.cumsum(axis=0) - counts` is where a source's rows start in an expert's inbox, and `home = "
            "counts.cumsum(axis=1) - counts` where an expert's rows start among a source's sorted tokens."
        ),
        (
            "`order = np.argsort(chosen, kind='stable')`; put `x[order][home[me, e]:][:counts[me, e]]` into "
            "`self.inbox[at[me, e]:][:counts[me, e]]` of each e; barrier; process `self.inbox[:counts[:, me].sum()]`; "
            "put the results back the same way in reverse; barrier; `x[order] += p.max(axis=1)[order, None] * "
            "self.back`."
        ),
    ),
    concept="""\
A fixed capacity avoids exchanging counts. A table of counts, 48 bytes here, allows exact buffers: no padding is sent or
multiplied, and no token is dropped. Only the imbalance remains: the step takes as long as the busiest expert.

One-sided puts fit well. Once the sender has the counts, it knows everything; the receiver only needs to know when the
rows have arrived, and a barrier signals that.
""",
    in_practice="""\
MegaBlocks (Gale et al. 2022) also drops no token. It replaces padded products with products of blocks of different
sizes, so it doesn't have to drop tokens as Switch Transformers do (Fedus et al. 2021). NCCL programs exchange counts
first, and then different numbers of rows. Libraries in the style of OpenSHMEM (Chapman et al. 2010), such as NVSHMEM,
put the rows.
""",
    sources=(MEGABLOCKS, SWITCH, OPENSHMEM),
)
