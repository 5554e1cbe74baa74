"""ExactDispatch: dropless dispatch without padding, by one-sided puts."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import MEGABLOCKS, OPENSHMEM, SWITCH

PUZZLE = EnginePuzzle(
    slug="ExactDispatch",
    title="No padding, and no token lost",
    targets={
        "sent": 944,
        "messages": 4,
        "receives": 0,
        "collectives": 1,
        "barriers": 2,
        "flops": 41_984,
        "weights": 11_008,
    },
    arithmetic="""\
How many tokens of which device go to which expert, in the shown data:

device 0: 3 0 5 0; device 1: 4 2 0 2; device 2: 1 5 2 0; device 3: 2 2 3 1.

Device 2 sends most: 6 of its rows leave home, and 8 that came from elsewhere (5 + 0 + 3) go back, 14 rows of 64 B,
896 B. The table of counts is gathered, 4 int32 from each: 3 x 16 = 48 B. Together 944 B. Nobody sends more than 4
messages: one for each device that it has rows for, and one for each that it has results for.

Buffers that lose no token would have had capacity 5: 2 x 3/4 x 4 x 5 x 64 = 1,920 B.

Experts 0 and 2 have most to do: 10 rows, 40,960 flops, and the router 1,024: 41,984. Weights as in
SwitchDispatch, 8,448 B; an inbox for all 32 tokens, 2,048 B, and 8 rows for what comes back, 512 B: 11,008 B.
""",
    statement="""\
Experts and router are those of SwitchDispatch, but there is no capacity: every token is served, and no padding is
sent. The output of a token is x + p_i(x) E_i(x), for its likeliest expert i.

The devices first tell each other how many rows they have for whom (int32 will do). Then everybody can work out
where in whose memory its rows belong, and puts them there: `self.symmetric(shape)` allocates the same buffer of
zeros on every device, and `self.send_async(rows, place, device)` writes `rows` into the buffer of another `device`,
at the place that `place`, a view of your own buffer, has in it. What was put is there after the next
`self.barrier()`. Until then nobody may look at the place; and nobody may put anything where another still has to read.

The target receives nothing by itself: no `receive` is allowed. Two barriers are, and one collective. A device
cannot put to itself; its own rows it can copy. Make the buffers in __init__: an inbox for as many rows as all
devices have tokens (all may choose your expert), and one for what comes back to your own.

`forward` gets your tokens, (8, 16), and returns their outputs. It is called again with other tokens.
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
        """Copy the router and your expert out of params; they are only lent."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your tokens, (8, 16); it is yours to write to. Returns (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Sort your tokens by expert, and rows for the same expert are one slice: one message.",
        (
            "Gather everybody's counts, `counts[source, expert]`. In the inbox of an expert the rows of device 0 come "
            "first, then those of device 1: where do yours begin?"
        ),
        (
            "`at = counts.cumsum(axis=0) - counts` is where a source's rows begin in an expert's inbox, and `home = "
            "counts.cumsum(axis=1) - counts` where an expert's rows begin among a source's sorted tokens."
        ),
        (
            "`order = np.argsort(chosen, kind='stable')`; put `x[order][home[me, e]:][:counts[me, e]]` into "
            "`self.inbox[at[me, e]:][:counts[me, e]]` of each e; barrier; serve `self.inbox[:counts[:, me].sum()]`; "
            "put the results back the other way round; barrier; `x[order] += p.max(axis=1)[order, None] * self.back`."
        ),
    ),
    concept="""\
A capacity is the price of not asking. A table of counts, 48 bytes here, buys exact buffers: no padding is sent
or multiplied, and no token is dropped. What remains is the imbalance itself: the step takes as long as the
fullest expert.

One-sided puts fit, because with the counts at hand the sender knows everything; the receiver need only know
when. That is what a barrier tells.
""",
    in_practice="""\
MegaBlocks (Gale et al. 2022) drops no token either: products of blocks of different sizes take the place of padded
ones, and the dropping of Switch Transformers (Fedus et al. 2021) with them. NCCL programs exchange counts first and
then rows of uneven number; libraries in the manner of OpenSHMEM (Chapman et al. 2010), such as NVSHMEM, put them.
""",
    sources=(MEGABLOCKS, SWITCH, OPENSHMEM),
)
