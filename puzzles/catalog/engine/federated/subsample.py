"""Subsample: send a random part of an update, scaled up to stay unbiased."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="Subsample",
    title="A few numbers, scaled up",
    devices=5,
    targets={"sent": 1_028},
    arithmetic="""\
4,096 / 16 = 256 numbers, 1,024 B, and a seed of 4 B: 1,028 B instead of 16,384. Each number h arrives with
probability p = 1/16, as h / p, and otherwise as 0: on average p h / p = h, with variance p (h / p)^2 - h^2 =
(1/p - 1) h^2 = 15 h^2.
""",
    statement="""\
Device 0 is a server, devices 1 to 4 are clients. A client gets {'update': (4096,), 'seed': a whole number below
2^32}: an update that is finished, with no zeros in it. It may send one in 16 of its numbers. The server gets
None, and returns an estimate of each client's update, (4, 4096): 0 where nothing was sent, and elsewhere so
much that it is right on average.

Which numbers are sent, you draw as you like, from the client's seed: exactly one in 16, every place as likely
as any other. Besides the shown size the class is tried with many seeds at a small one, and the same seed has
to lead to the same result.
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
        "The largest numbers would make the smallest error, every time the same one. Why does averaging not help then?",
        "If a number arrives once in 16 times, by what must it be multiplied to be right on average?",
        (
            "`places = np.random.default_rng(seed).choice(size, size // share, replace=False)` on both sides; send "
            "`np.uint32(seed)` and `update[places]`, and let the server put `share` times that there."
        ),
    ),
    concept="""\
This is a sketched update: computed in full, then cut down. Each estimate is far off, but unbiased, and errors
of independent clients cancel: the average over K clients has a K-th of the variance. Scaling is what makes it
unbiased; without it the average is 16 times too small.
""",
    in_practice="""\
Konečný et al. (2016) thin updates out like this, with a mask that a seed stands for. Sending the largest
numbers instead is common among data-parallel workers; it is biased, so what was not sent is kept and added
to the next round's update.
""",
    sources=(FEDERATED_STRATEGIES,),
)
