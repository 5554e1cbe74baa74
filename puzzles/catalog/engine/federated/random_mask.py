"""RandomMask: train and send only the places that a seed picks."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="RandomMask",
    title="Train a few places",
    devices=5,
    targets={"sent": 1_032},
    arithmetic="""\
256 of 4,096 numbers, 1,024 B, and a seed of 8 B, the least that a message costs: 1,032 B instead of 16,384. If the
places had to be sent too, 256 whole numbers of 8 B, it would be 3,072 B.
""",
    statement="""\
The same layer, clients and server as in LowRank, but with another restriction: a client's update may be nonzero in only
256 of its 64 x 64 places. These are drawn from its seed, in the flat order of the array:

    places = np.random.default_rng(seed).choice(4096, 256, replace=False)

In each of `steps` steps, only these weights go down the gradient of the sum of (x @ w - y)^2 / 2, taken at the current
weights, with all changes so far. A client gets {'x', 'y', 'seed'}. The server gets None, and returns the
clients' updates as it has rebuilt them, (4, 64, 64). Another size is also tried.

`params` holds 'weights', (64, 64). `kept` is 256, and `rate` multiplies the gradient.
""",
    starter='''\
class RandomMask(ShardedEngine):
    """Train a few places."""

    def __init__(self, dim, kept, rate, steps):
        """Make room for the weights, (dim, dim); `kept` of them may change."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy 'weights' out of params."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, examples):
        """None on device 0; {'x', 'y', 'seed'} on a client. Device 0 returns all updates, (4, dim, dim)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "The server can draw the places again. What does it need for that, apart from their values?",
        (
            "Mask the gradient in every step, not the update at the end: a later gradient must not depend on changes "
            "that are dropped."
        ),
        (
            "`grad.ravel()[places]` are the 256 gradient entries to use; `update.ravel()[places] = values` puts the "
            "values back. Send `np.uint32(seed)` and the values."
        ),
    ),
    concept="""\
This is another structured update: a client trains only what it will send. So nothing is lost, and nothing has to be
scaled up, unlike when a full update is trained and then subsampled.
""",
    in_practice="""\
Konečný et al. (2016) compare it with low-rank updates of the same size, and draw a new mask in every round and for
every client.
""",
    sources=(FEDERATED_STRATEGIES,),
)
