"""Rotate: a random rotation before one-bit quantization."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES, MEAN_ESTIMATION

PUZZLE = EnginePuzzle(
    slug="Rotate",
    title="Spread the spikes",
    devices=5,
    targets={"sent": 536, "collectives": 0, "peak": 262_144},
    arithmetic="""\
4,096 bits are 512 B, the minimum and the maximum 8 B, a seed 8 B, because no message costs less: 528 B. The
target leaves room for the minimum and the maximum in two messages. A vector has 16,384 B. The server has four
estimates, and eight while `np.stack` joins them; 16 vectors, 262,144 B, leave the same amount again for rotating. The
matrix H would take 4,096 vectors. Only the server needs what clients send, so no call is a collective.

With one bit, the expected squared errors add up to the sum of (h_max - h)(h - h_min). Client 1's update has spikes of
32 and -32, and is near 0 elsewhere: 4,187,428, about 4,096 x 32^2. After rotation, the numbers are sums of 4,096 small
ones, of variance 6,876 / 4,096 = 1.7. The largest of so many is about 4 standard deviations, and the sum is 69,000 on
average over signs, a sixtieth. Client 2's update is e0 - e1. After rotation, each number is 0 or, with one sign,
2 / 64: only two values, so one bit is exact, where without rotation the errors add up to 4,094.
""",
    statement="""\
As in Quantize with one bit, but with updates that a few spikes dominate. Quantized directly, all other numbers would
become one extreme or the other. So a client rotates first. With d = 4096, a power of 4, and H the Walsh-Hadamard matrix
(H_1 = [1], H_2n = [[H_n, H_n], [H_n, -H_n]]), it sends a bit for each number of H (signs * update) / sqrt(d). The
server decodes these and rotates back. So that there is exactly one right result, draw in this order:

    rng = np.random.default_rng(seed)
    signs = 2 * rng.integers(0, 2, d) - 1
    draws = rng.random(d)

A rotated number r becomes the maximum if its draw is less than (r - minimum) / (maximum - minimum), and otherwise
the minimum; if all are equal, they stay unchanged. The server gets None, does not know the seed, and returns
estimates, (4, 4096). Clients send to the server, without collectives. There is no room for H as a matrix. Another d
is also tried: take it from `size`.

A client gets {'update': (4096,), 'seed': a whole number}.
This puzzle is about compression: packing numbers into fewer bytes is the point. An array of any type costs its own
bytes.
""",
    starter='''\
class Rotate(ShardedEngine):
    """Spread the spikes."""

    def __init__(self, size):
        """`size` numbers in an update, each to be sent in one bit."""
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
        "H H = d, so H / sqrt(d) is its own inverse. What is the inverse of multiplying by signs?",
        (
            "H_2n maps a vector with halves a and b to H_n a + H_n b and H_n a - H_n b. So log2(d) rounds of sums and "
            "differences are enough, without a matrix."
        ),
        (
            "For half = 1, 2, 4, ... while half < d: `pairs = v.reshape(-1, 2, half)`, then `v = np.stack([pairs[:, 0] "
            "+ pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)`; at the end `v.ravel() / np.sqrt(d)`, in float32. The "
            "server does the same with what it decodes, and multiplies by the signs."
        ),
    ),
    concept="""\
A rotation preserves lengths, so errors have the same size before and after. But it turns any vector into one whose
numbers are about equally large: each is a sum of all the old ones, with random signs. The range shrinks from the size
of the largest number to a few times the average size, and the variance shrinks with it.

Unbiased codes can be applied one after the other and stay unbiased. A client that rotates, keeps one in 16 of the
rotated numbers as in Subsample, and sends each in 2 bits as in Quantize needs 64 B for them, 8 B for the extremes and
8 B for the seed: 80 B instead of 16,384 B. The savings multiply, and each code adds variance. Rotation comes first: it
makes the numbers similar, so it matters less which ones are kept and how coarsely they are rounded.
""",
    in_practice="""\
Suresh et al. (2017) show that the rotation lowers the expected squared error of a mean over n clients, for vectors of
length 1, from the order of d / n to the order of log(d) / n. Konečný et al. (2016) rotate, subsample and quantize the
updates of phones, and report uplinks smaller by two orders of magnitude; a model then needs more rounds. The same trick
against outliers is now used to quantize the activations of large models.
""",
    sources=(FEDERATED_STRATEGIES, MEAN_ESTIMATION),
)
