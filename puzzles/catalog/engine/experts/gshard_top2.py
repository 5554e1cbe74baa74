"""GShardTop2: GShard's top-2 gate with a random second choice."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import SPARSELY_GATED
from puzzles.catalog.papers import GSHARD

PUZZLE = EnginePuzzle(
    slug="GShardTop2",
    title="A first choice, and a random second one",
    targets={"sent": 1_536, "flops": 67_176, "weights": 8_448},
    arithmetic="""\
Each of 32 tokens has two choices, in 4 groups and among 4 experts, so an expert has C = 2 x 32 / (4 x 4) = 4 places for
each group. The buffer has 4 x 4 rows of 64 B, 1,024 B. An all-to-all sends 3/4 of it, 768 B; there and back, 1,536 B.

An expert gets 4 x 4 rows, which take 4,096 flops each, 65,536. The router takes 1,024. Products and quotients element
by element take 2 flops each: 2 x 8 x 4 = 64 in the softmax, 2 x 16 = 32 for two gates of each token, 2 x 2 x 8 x 16 =
512 for gates times outputs, and 2 x 4 = 8 for counts times means. Together 67,176. One expert and the router take
8,448 B.
""",
    statement="""\
The experts and the router are the same as in SwitchDispatch. The tokens of one device are a group, and an expert has
`capacity` places for each group. The gate is Algorithm 1 of GShard, in four steps:

1. g = softmax(x @ router). For each token, e1 and e2 are the experts with the largest and second largest gate.
Divide both gates by their sum: g1 + g2 = 1.

2. Go through the tokens in order. A token's place at e1 is the number of tokens that e1 has been given so far,
whether they fitted or not. If the place is below the capacity, expert e1 processes the token with weight g1.

3. The group's auxiliary loss is the mean over the experts of c_e / S x m_e: c_e is the number of first choices after
step 2, S the number of tokens, m_e the mean of g over the group.

4. Go through the tokens again, and continue the counts from step 2. A token's place at e2 is the number of tokens that
e2 has been given so far. If the place is below the capacity, and 2 g2 > rnd, expert e2 processes it with weight g2. The
token is counted in either case.

`forward` gets a dictionary: 'x', your tokens (8, 16), and 'rnd', a random number from 0 to 1 for each, (8,). It returns
'out', (8, 16), which is x plus the weighted outputs of the experts that process each token, and 'aux', the auxiliary
loss of your group, (1,).

`params` holds 'router/weights' (16, 4) and, for each expert i, 'expert_i/w0' (16, 64) and 'expert_i/w1' (64, 16).
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
        """Copy the router and your expert out of params: it is valid only during this call."""
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
        "Start from your SwitchDispatch, and write the gate as two loops first. Only the buffers grow.",
        (
            "Without loops: put all first choices before all second ones, `np.concatenate([e1, e2])`, and compute one "
            "cumulative sum of one-hot rows. Its rows are the places of both, and row S - 1 has the counts c."
        ),
        (
            "`buffer[e1[keep1], place1[keep1]] = x[keep1]`, and the same for the second choices. One all_to_all in "
            "each direction serves both. Then `x[keep1] += g1[keep1, None] * back[e1[keep1], place1[keep1]]`, and so "
            "on."
        ),
    ),
    concept="""\
If two experts process a token, the router can compare them. First choices get places before all second choices. A
second choice takes one of the places that are left only with probability 2 g2. So a token with a small weight for its
second expert rarely takes a place from a token with a large one.

All counting happens inside a group, so there is no more communication than in SwitchDispatch, only larger buffers.
""",
    in_practice="""\
GShard (Lepikhin et al. 2020) trained a translation model of 600 billion parameters with this gate, on 2,048 TPUs. The
idea of several experts per token comes from Shazeer et al. (2017), whose gate adds noise instead of a random choice.
Later programs differ in details: some make the random choice before they count places, so that tokens that lose it
leave no place empty.
""",
    sources=(GSHARD, SPARSELY_GATED),
)
