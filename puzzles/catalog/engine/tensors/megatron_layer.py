"""MegatronLayer: a transformer layer with attention split by heads and the MLP by columns and rows."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import TRANSFORMER
from puzzles.catalog.papers import MEGATRON

PUZZLE = EnginePuzzle(
    slug="MegatronLayer",
    title="A transformer layer with four all-reduces",
    targets={"sent": 3_072, "collectives": 4, "flops": 40_320, "weights": 3_072},
    arithmetic="""\
An activation is 8 x 16 x 4 = 512 B; an all-reduce of it sends 2 x 3/4 x 512 = 768 B. One after attention, one
after the MLP, and one for the gradient of the input of each: 4 x 768 = 3,072 B.

Weights: four of 16 x 16 and two of 16 x 64 are 3,072 numbers, 12,288 B, a quarter of them 3,072 B. Their
products take 2 x 8 x 3,072 = 49,152 flops forward. The two products of attention, in which each head multiplies
(8, 4) by (4, 8) and (8, 8) by (8, 4), take 2 x 4 x 2 x 8 x 8 x 4 = 4,096. A quarter is 13,312. Backward computes two
products for each: 3 x 13,312 = 39,936. The softmax divides 8 x 8 numbers for each head, and its gradient multiplies
twice as many, element by element, with 2 flops for each: 3 x 2 x 64 = 384. Together 40,320.
""",
    statement="""\
A transformer layer without norms and dropout: `y = x + attention(x)`, then `y + relu(y @ up) @ down`. Every
device gets all 8 tokens, (8, 16), and returns the full output. The heads and the MLP are divided among the devices.

`params` has 'attention/query', 'attention/key', 'attention/value' and 'attention/output', (16, 16) each,
'mlp/up' (16, 64) and 'mlp/down' (64, 16). With 4 heads, head_dim is 4, and head h has the columns 4 h to 4 h + 3
of `x @ query`, `x @ key` and `x @ value`. In each head, every token sees every token: `softmax(q @ k.T /
sqrt(head_dim)) @ v`, with softmax along each row. The heads' results are joined side by side, (8, 16), and
multiplied by output.

`backward` returns the gradients of your parts of all six weights, in the shape of your parts, and under 'x' the
gradient of the full input. Device i has the i-th part of the heads. Other numbers of heads and devices are also
tried. Results may differ from a single device's by 0.00001 of the largest number. Everything is float32. Note that
`np.sqrt(4)` is a float64 and turns every array that it multiplies into one, while `4 ** 0.5` does not.
""",
    starter='''\
class MegatronLayer(ShardedEngine):
    """A transformer layer in four sums."""

    def __init__(self, model_dim, hidden_dim, heads):
        """Get ready for your part of the heads, and of the MLP."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your part of each weight: a view would keep the full array."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: all tokens, (8, 16). Returns the full output."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (8, 16). Returns the gradients of your parts by name, and 'x': (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Which of attention's four weights should be cut by columns, and which by rows, so that each head stays on "
        "one device?",
        (
            "Attention is TensorParallel with softmax instead of relu: query, key and value by columns, output by "
            "rows, then one sum. Be careful where you add x: a sum over devices adds what each of them contributes."
        ),
        (
            "Three products share the input x, so its gradient is a sum of three. Add them up on your device, and "
            "send the total in one all-reduce."
        ),
        (
            "`y = x + self.all_reduce(mixed @ output)`. Backward of softmax, with `p` its result: `ds = p * (dp - (dp "
            "* p).sum(axis=-1, keepdims=True)) / sqrt(head_dim)`; then `dq = ds @ k`, `dk = ds.T @ q`, `dv = p.T @ "
            "dmixed`, `dp = dmixed @ v.T`. And `dx = dy + self.all_reduce(dq @ query.T + dk @ key.T + dv @ value.T)`."
        ),
    ),
    concept="""\
Heads are independent, as hidden units are, so a device that holds complete heads needs no communication until the
output is summed. A layer costs two sums forward and two backward, no matter how large its weights are.
""",
    in_practice="""\
Megatron-LM trains GPT and BERT like this (Shoeybi et al. 2019). Every device computes norms, dropout and residuals
for all tokens, unless sequence parallelism splits these too. The number of heads limits the number of devices.
""",
    sources=(MEGATRON, TRANSFORMER),
)
