"""Subsample: send a random part of an update, scaled up to stay unbiased."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="Subsample",
    title="A few numbers, scaled up",
    devices=5,
    targets={"sent": 1_032},
    arithmetic="""\
4,096 / 16 = 256 numbers, 1,024 B, and a seed of 8 B, the least that a message costs: 1,032 B instead of 16,384. Each
number h arrives with probability p = 1/16, as h / p, and otherwise as 0: on average p h / p = h, with variance p (h /
p)^2 - h^2 = (1/p - 1) h^2 = 15 h^2.
""",
    statement="""\
Device 0 is a server, devices 1 to 4 are clients. A client gets {'update': (4096,), 'seed': a whole number below 2^32}:
a finished update without zeros. It may send one in 16 of its numbers. The server gets None, and returns an estimate of
each client's update, (4, 4096): 0 where nothing was sent, and elsewhere a value that makes the estimate right on
average.

You may draw in any way which numbers are sent, from the client's seed: exactly one in 16, with every place equally
likely. The class is tried at the shown size, and with many seeds at a small size. The same seed must give the same
result.

`share` is 16.
""",
    starter='''\
class Subsample(ShardedEngine):
    """A few numbers, scaled up."""

    def __init__(self, size, share):
        """`size` numbers in an update; one in `share` is sent."""
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
        "Sending the largest numbers gives the smallest error, but the same one every time. Why doesn't averaging help "
        "then?",
        "If a number arrives once in 16 times, what must you multiply it by to make it right on average?",
        (
            "`places = np.random.default_rng(seed).choice(size, size // share, replace=False)` on both sides; send "
            "`np.uint32(seed)` and `update[places]`, and let the server put `share` times these values there."
        ),
    ),
    concept="""\
This is a sketched update: computed in full, then cut down. Each estimate is far off, but unbiased, and the errors of
independent clients cancel: the average over K clients has 1/K of the variance. Scaling makes it unbiased; without it
the average is 16 times too small.
""",
    in_practice="""\
Konečný et al. (2016) subsample updates like this, with a mask given by a seed. Data-parallel training often sends the
largest numbers instead. That is biased, so what was not sent is kept and added to the next round's update.
""",
    sources=(FEDERATED_STRATEGIES,),
)
