"""Compose: rotate, subsample and quantize an update."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="Compose",
    title="All three at once",
    devices=5,
    targets={"sent": 76, "peak": 262_144},
    arithmetic="""\
4,096 / 16 = 256 numbers of 2 bits are 64 B, their least and largest 8 B, a seed 4 B: 76 B instead of 16,384, 215
times less. Without quantizing it would be 1,028 B, without subsampling 1,036 B. The limit of memory is that of
Rotate, 16 vectors of 16,384 B.

It is still unbiased: decoding is right on average, whichever numbers were kept; these, scaled by 16, are right on
average, whichever the signs; and rotating back is linear.
""",
    statement="""\
Now put it all together. A client gets {'update': (4096,), 'seed': a whole number below 2^32}. It rotates its update
as in Rotate, keeps one in 16 of the rotated numbers as in Subsample, and sends each of these in 2 bits as in
Quantize: the levels go from the least to the largest of the kept numbers. Draw in this order:

    rng = np.random.default_rng(seed)
    signs = 2 * rng.integers(0, 2, 4096) - 1
    places = rng.choice(4096, 256, replace=False)
    draws = rng.random(256)

The i-th draw is for the number at places[i]: it goes up to the next level where the draw is less than its fraction
of the step. The server gets None, undoes it all, and returns estimates that are right on average, (4, 4096).
Other sizes are tried as well: take them from the arguments.
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
        "The server undoes the steps in the opposite order. Which draws has it to repeat for that, and which not?",
        (
            "Signs and places come first in the order of drawing, so the server can draw these two and stop; the coins "
            "are the client's alone."
        ),
        (
            "On the server: decode the levels, put `share` times that at `places` in an array of zeros, apply H / "
            "sqrt(d), multiply by the signs. `np.packbits(levels[:, None] >> np.arange(bits) & 1)` packs 2 bits each."
        ),
    ),
    concept="""\
Unbiased codes can be applied one after the other, and stay unbiased; their savings multiply, and each adds to the
variance. Rotation comes first: it makes the numbers alike, so that it matters least which ones are kept and how
coarsely they are rounded.
""",
    in_practice="""\
Konečný et al. (2016) combine the three, and report uplinks smaller by two orders of magnitude. A model trained
so needs more rounds, which is well paid for where uplinks are slow.
""",
    sources=(FEDERATED_STRATEGIES,),
)
