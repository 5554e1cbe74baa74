"""GShardTop2: GShard's top-2 gate with a random second choice."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GSHARD, SPARSELY_GATED

PUZZLE = EnginePuzzle(
    slug="GShardTop2",
    title="A first choice, and a second one by chance",
    targets={"sent": 1_536, "flops": 66_560, "weights": 8_448},
    arithmetic="""\
Two choices of 32 tokens, over 4 groups and 4 experts: C = 2 x 32 / (4 x 4) = 4 places. The buffer is 4 x 4
rows of 64 B, 1,024 B; all-to-all sends 3/4 of it, 768 B, there and back 1,536 B. An expert is given 4 x 4
rows of 4,096 flops, 65,536, and the router takes 1,024: 66,560. One expert and the router: 8,448 B.
""",
    statement="""\
Experts and router are those of SwitchDispatch. A device's tokens are a group, and an expert has `capacity` places
for each group. The gate is Algorithm 1 of GShard, step by step:

1. g = softmax(x @ router). For each token, e1 and e2 are the experts of its largest and second largest gate;
divide both gates by their sum: g1 + g2 = 1.

2. Go through the tokens in order. A token's place at e1 is how many tokens e1 has been given so far, whether
they fitted or not. If the place is below the capacity, expert e1 serves the token with weight g1.

3. The group's auxiliary loss is the mean over the experts of c_e / S x m_e: c_e counts first choices after
step 2, S the tokens, m_e is the mean of g over the group.

4. Go through the tokens again, counting on from there. A token's place at e2 is how many e2 has been given so
far. If the place is below the capacity, and 2 g2 > rnd, expert e2 serves it with weight g2. Whether it does
or not, the token is counted.

`forward` gets a dictionary: 'x', your tokens (8, 16), and 'rnd', a random number from 0 to 1 for each, (8,).
It returns 'out', (8, 16), x plus the weighted outputs of the experts that serve it, and 'aux', the auxiliary
loss of your group, (1,).
""",
    starter='''\
class GShardTop2(ShardedEngine):
    """A first choice, and a second one by chance."""

    def __init__(self, model_dim, hidden_dim, capacity):
        """Make room for the router and for your expert."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the router and your expert out of params; they are only lent."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, given):
        """given: 'x' (8, 16) and 'rnd' (8,), yours to write to. Returns 'out' (8, 16) and 'aux' (1,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "SwitchDispatch does most of it. Write the gate as two loops first; the bytes do not mind.",
        (
            "Without loops: put all first choices before all second ones, `np.concatenate([e1, e2])`, and take one "
            "cumulative sum of one-hot rows. Its rows are the places of both, and row S - 1 has the counts c."
        ),
        (
            "`buffer[e1[keep1], place1[keep1]] = x[keep1]`, and the same for the second; one all_to_all there and one "
            "back serve both. Then `x[keep1] += g1[keep1, None] * back[e1[keep1], place1[keep1]]`, and so on."
        ),
    ),
    concept="""\
Two experts give the router something to compare. First choices take the places; second ones get what is left, and
only by a coin that falls for them with probability 2 g2: whoever hardly wants the second expert seldom takes a place
from those who do.

All of it is counting inside a group, so the devices talk no more than in SwitchDispatch: only the buffers are larger.
""",
    in_practice="""\
GShard (Lepikhin et al. 2020) trained a translation model of 600 billion parameters with this gate, on 2,048 TPUs.
Several experts for a token come from Shazeer et al. (2017), whose gate has noise and no coin. Later programs differ in
details: some toss the coin before a place is counted, so that refused tokens leave no holes.
""",
    sources=(GSHARD, SPARSELY_GATED),
)
