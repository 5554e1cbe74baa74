"""Compose: rotate, subsample and quantize an update."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="Compose",
    title="All three together",
    devices=5,
    targets={"sent": 88, "collectives": 0, "peak": 262_144},
    arithmetic="""\
4,096 / 16 = 256 numbers of 2 bits are 64 B, their minimum and maximum 8 B, a seed 8 B, because no message costs less:
80 B instead of 16,384, 205 times less. The target leaves room for the minimum and the maximum in two messages. Without
quantizing it would be 1,032 B, without subsampling 1,040 B. The memory limit is the same as in Rotate, 16
vectors of 16,384 B, and no call is a collective.

It is still unbiased. Decoding is right on average, no matter which numbers were kept. These numbers, scaled by 16, are
right on average for any signs. And rotating back is linear.
""",
    statement="""\
Now combine everything. A client gets {'update': (4096,), 'seed': a whole number below 2^32}. It rotates its update as
in Rotate, keeps one in 16 of the rotated numbers as in Subsample, and sends each of these in 2 bits as in Quantize:
the levels go from the minimum to the maximum of the kept numbers. Draw in this order:

    rng = np.random.default_rng(seed)
    signs = 2 * rng.integers(0, 2, 4096) - 1
    places = rng.choice(4096, 256, replace=False)
    draws = rng.random(256)

The i-th draw is for the number at places[i]: the number goes up to the next level if the draw is less than its
fraction of the step. The server gets None, reverses all steps, and returns unbiased estimates, (4, 4096). Clients send
to the server, without collectives. Other sizes are also tried: take them from the arguments.

`share` is 16, and `bits` 2. This puzzle is about compression: packing numbers into fewer bytes is the point. An array
of any type costs its own bytes.
""",
    starter='''\
class Compose(ShardedEngine):
    """All three at once."""

    def __init__(self, size, share, bits):
        """`size` numbers in an update; one in `share` is sent, in `bits` bits."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """None on device 0; {'update': (size,), 'seed'} on a client. Device 0 returns estimates, (4, size)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "The server undoes the steps in reverse order. Which draws does it have to repeat for that, and which not?",
        (
            "Signs and places are drawn first, so the server can draw these two and stop. Only the client needs the "
            "draws for rounding."
        ),
        (
            "On the server: decode the levels, put `share` times the result at `places` in an array of zeros, apply H "
            "/ sqrt(d), multiply by the signs. `np.packbits(levels[:, None] >> np.arange(bits) & 1)` packs 2 bits each."
        ),
    ),
    concept="""\
Unbiased codes can be applied one after the other and stay unbiased. Their savings multiply, and each adds variance.
Rotation comes first: it makes the numbers similar, so it matters less which ones are kept and how coarsely they are
rounded.
""",
    in_practice="""\
Konečný et al. (2016) combine the three, and report uplinks smaller by two orders of magnitude. A model trained this
way needs more rounds, which is worth it where uplinks are slow.
""",
    sources=(FEDERATED_STRATEGIES,),
)
