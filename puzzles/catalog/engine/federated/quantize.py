"""Quantize: stochastic rounding of an update to a few bits."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES, MEAN_ESTIMATION

PUZZLE = EnginePuzzle(
    slug="Quantize",
    title="Random rounding to a few bits",
    devices=5,
    targets={"sent": 528},
    arithmetic="""\
4,096 numbers of one bit are 512 B; the minimum and the maximum 8 B: 520 B instead of 16,384. No message costs less
than 8 B, and the target leaves room for the two in two messages, 528 B. With two bits 1,024 + 8 = 1,032 B. No seed is
sent, because the server draws nothing.

A number h between levels h' and h'' becomes h'' with probability q = (h - h') / (h'' - h'), and otherwise h'.
On average that is h' + q (h'' - h') = h. The variance is q (1 - q) (h'' - h')^2 = (h'' - h)(h - h'); with one
bit, (h_max - h)(h - h_min). Konečný et al. divide the range into 2^b intervals for b bits, which would need 2^b + 1
levels. Here b bits mean 2^b levels, 2^b - 1 intervals. For b = 1 it is what they describe.
""",
    statement="""\
Device 0 is a server, devices 1 to 4 are clients. A client gets {'update': (4096,), 'seed': a whole number}. It sends
each number in `bits` bits: one of 2^bits levels, evenly spaced from the minimum of the update to its maximum. A number
between two levels becomes one of the two, at random, so that it is right on average. If all numbers are equal, so are
the levels.

The server gets None, and returns what it has decoded, (4, 4096). The class is tried with 1 and 2 bits, and with many
seeds at a small size. You may draw in any way from the client's seed: independently for every number, and the same for
the same seed.

This puzzle is about compression: packing numbers into fewer bytes is the point. An array of any type costs its own
bytes.
""",
    starter='''\
class Quantize(ShardedEngine):
    """A coin for every number."""

    def __init__(self, size, bits):
        """`size` numbers in an update, each to be sent in `bits` bits."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """None on device 0; {'update': (size,), 'seed'} on a client. Device 0 returns what it decodes, (4, size)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Rounding to the nearest level makes the same error every time. Where do you need chance, and how much of it?",
        (
            "Express each number in steps, from 0 to 2^bits - 1. Its integer part is the level below; its fraction is "
            "the probability of the level above."
        ),
        (
            "`levels = below + (rng.random(size) < exact - below)`. `np.packbits` turns single bits into bytes: "
            "`levels[:, None] >> np.arange(bits) & 1` has a row of bits for each number, and `np.unpackbits(packed, "
            "count=size * bits)` reverses it."
        ),
    ),
    concept="""\
One bit per number can still be right on average, if the rounding is random. The price is variance: it is largest for
numbers in the middle between two levels, and grows with the square of the range, which a single spike can stretch.
""",
    in_practice="""\
Suresh et al. (2017) analyze stochastic rounding of updates, and Konečný et al. (2016) propose it for phones. Libraries
for federated learning offer it as an option, usually with more bits.
""",
    sources=(FEDERATED_STRATEGIES, MEAN_ESTIMATION),
)
