"""ShardedAdam: float16 weights on every device, and the float32 master weights and moments in shards."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import MIXED_PRECISION
from puzzles.catalog.papers import ADAM, ZERO

PUZZLE = EnginePuzzle(
    slug="ShardedAdam",
    title="An Adam step in mixed precision",
    targets={"sent": 43_032, "collectives": 18, "weights": 10_240, "kept": 10_240, "peak": 15_360},
    arithmetic="""\
There are P = 2,048 parameters. In float16 they take 2 P = 4,096 B on every device. A master copy, a mean and a mean
square in float32 take 12 P = 24,576 B, a quarter of them 6,144 B. Together 10,240 B instead of 28,672 B.

Each of the four steps reduce-scatters both gradients, 2 x 3/4 x 4,096 = 6,144 B at 4 B a number, and all-reduces one
number, 2 x 3/4 x 4 = 6 B. Three of them gather both weights, 2 x 3 x 1,024 = 6,144 B each. That is 4 x 6,150 + 3 x
6,144 = 43,032 B, in 4 x 3 + 3 x 2 = 18 collectives.

Memory peaks in the update of one weight. Besides 10,240 B there are the shards of both gradients in float16, 2 x 512 B,
and four float32 arrays of a shard's size: the gradient, the denominator, and two products, 4 x 1,024 B. Together
15,360 B. If both full gradients were kept until the step, it would be 3,072 B more.
""",
    statement="""\
Train `relu(x @ w0) @ w1` with Adam in mixed precision, sharded as in ZeRO2. What a device holds:

| what | type | which part |
|---|---|---|
| the weights, for forward and backward | float16 | all |
| the gradients, between backward and step | float16 | your quarter of the rows |
| master weights, mean m and mean square v | float32 | your quarter of the rows |

`forward(x)` gets float16 rows and returns float16. `backward(grads)` gets float32 numbers that are too small for
float16. Multiply them by `scale`, and convert them to float16; then all gradients are `scale` times too large. Reduce
them in float16, and keep your shards. It returns nothing.

`step(None)` first checks the gradients. If any summed gradient, on any device, is not finite, no device makes the step:
halve the scale and drop the gradients. Otherwise t is one more, and for your rows, in float32, with g the shard divided
by the scale:

    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    master -= rate * (m / (1 - 0.9 ** t)) / (sqrt(v / (1 - 0.999 ** t)) + epsilon)

Then every device gets the new weights in float16. `step` returns {'weights': {...}, 'master': {...}, 'scale': ...}:
your own arrays, by name. The four steps that are tried contain one overflow, in the rows of one device. Other sizes
and another number of devices are also tried.

`params` holds 'layer_0/weights' (16, 64) and 'layer_1/weights' (64, 16), in float32; weights and master have the same
names. The meter counts 4 bytes for each number sent, also in float16; memory counts the real types.
""",
    starter='''\
class ShardedAdam(ShardedEngine):
    """An Adam step in mixed precision."""

    def __init__(self, model_dim, hidden_dim, rate, epsilon, scale):
        """Keep what you need to know."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Keep the weights in float16, and your rows of them in float32."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16), float16. Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16), float32, unscaled. Keeps your shards of both summed gradients, scaled, in float16."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def step(self, _):
        """Returns {'weights': float16, by name, 'master': your rows in float32, by name, 'scale': a number}."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Start from your ZeRO2. Which of its arrays become float16, and which new ones do you need in float32?",
        (
            "An overflow shows in the shard of one device only. The others have to know before anybody updates: the "
            "smallest of one number per device is enough."
        ),
        ("A skipped step leaves m, v, the master weights and t as they are. So check first, then count, then update."),
        (
            "`finite = all(np.isfinite(shard).all() for shard in self.shards.values())`, then "
            "`if self.all_reduce(np.float32(finite), 'min'):`. In the update, `grad = shard.astype(np.float32)`, and "
            "`weight[...] = self.all_gather(master.astype(np.float16))`."
        ),
    ),
    concept="""\
Three formats, three reasons. Products are fast and small in float16. Its spacing near 1 is 2^-10, and a step here is
2^-13, so the weights would never move: small steps add up in a float32 copy. And its smallest numbers are near 2^-24:
gradients vanish unless the loss is scaled, and overflow if it is scaled too much. Only a device's own rows show the
overflow, so a step is a decision that all devices must make together.
""",
    in_practice="""\
Master weights and loss scaling are from Micikevicius et al. (2017), Adam from Kingma and Ba (2014). ZeRO (Rajbhandari
et al. 2020) shards the 12 bytes of float32 state. DeepSpeed and PyTorch's GradScaler skip steps that overflow, and
double the scale after some hundreds or thousands of steps without one. bfloat16 has the range of float32, needs no
scale, and keeps the master weights.
""",
    sources=(ADAM, MIXED_PRECISION, ZERO),
)
