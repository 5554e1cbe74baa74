"""SwitchDispatch: top-1 dispatch and combine by all-to-all, with a capacity."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import SPARSELY_GATED, SWITCH

PUZZLE = EnginePuzzle(
    slug="SwitchDispatch",
    title="Send tokens to their expert and back",
    targets={"sent": 768, "flops": 34_112, "weights": 8_448},
    arithmetic="""\
A device has 8 tokens for 4 experts. With factor 1.0 an expert takes 8 / 4 = 2 of them: the buffer is 4 x 2
rows of 16 numbers, 512 B. All-to-all sends 3/4 of it, 384 B, and 768 B both ways. With factor 1.25 the
capacity is 2.5, rounded up to 3: 768 B of buffer, 1,152 B both ways. Gathering all tokens and all results would send
3 x 512 = 1,536 B each.

An expert gets 4 x 2 rows, 2 x 2 x 16 x 64 = 4,096 flops each, full or not: 32,768; the router takes 2 x 8 x
16 x 4 = 1,024. A product or quotient of two arrays, element by element, counts 2 flops for each: the softmax divides
8 x 4 numbers, 64, and the probabilities multiply 8 x 16, 256: 34,112. (With factor 1.25: 12 rows, 50,496.) One expert
is 2 x 1,024 numbers, 8,192 B, the router 64, 256 B: 8,448 B; four experts would be 32,768 B.
""",
    statement="""\
There are as many experts as devices: device i holds expert i, `relu(x @ w0) @ w1`, with weights
'expert_i/w0' (16, 64) and 'expert_i/w1' (64, 16). Every device holds the router, 'router/weights' (16, 4).

`forward` gets this device's tokens, (8, 16). The router gives each token probabilities p(x) = softmax(x @ router), and
the token chooses the likeliest expert i. Its output is x + p_i(x) E_i(x): the expert's output times its probability,
plus the token itself (the residual connection).

Shapes are fixed before the router runs. An expert takes at most `capacity` tokens of each device: tokens / experts x
factor, rounded up. It takes the first ones, in token order. Tokens that do not fit skip the expert: their output is x.

Return a dictionary: 'out', (8, 16), and 'dropped', the indices of your tokens that skipped the expert, in ascending
order. Results may differ from a single device's only by rounding.
""",
    starter='''\
class SwitchDispatch(ShardedEngine):
    """Tokens go to their expert and come back."""

    def __init__(self, model_dim, hidden_dim, factor):
        """Make room for the router and for your expert."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the router and your expert out of params: it is valid only during this call."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your tokens, (8, 16); you may write into it. Returns 'out' and 'dropped'."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Fill a buffer of shape (experts, capacity, 16) with your tokens. What does all_to_all do with its first axis?",
        (
            "A token's place in its expert's part is the number of earlier tokens that have chosen the same expert: a "
            "cumulative sum of one-hot rows, `np.eye(experts, dtype=int)[chosen].cumsum(axis=0) - 1`."
        ),
        (
            "`rows = self.all_to_all(buffer)` are the rows for your expert, from each device. After `back = "
            "self.all_to_all(relu(rows @ self.w0) @ self.w1)`, `back[chosen[i], place[i]]` is the result for token i. "
            "Empty slots do no harm: relu(0 @ w0) @ w1 is 0."
        ),
    ),
    concept="""\
A model with N experts has N times the weights, but each token is multiplied with only one expert's. The router decides
at run time which tokens go where, yet every buffer has a fixed shape: the capacity. A low capacity drops tokens; a high
one sends and multiplies zeros.

The factor p(x) looks like a detail, but the router learns only through it, because the choice itself has no gradient.
""",
    in_practice="""\
Switch Transformers (Fedus et al. 2021) choose one expert per token, where earlier mixtures chose two or more (Shazeer
et al. 2017). They worked best with low capacity factors, 1.0 and 1.25. The price of splitting the experts is the
all-to-all in both directions, in every such layer.
""",
    sources=(SWITCH, SPARSELY_GATED),
)
