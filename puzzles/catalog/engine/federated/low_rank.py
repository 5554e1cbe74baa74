"""LowRank: train and send one of two factors of an update."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_STRATEGIES

PUZZLE = EnginePuzzle(
    slug="LowRank",
    title="Send one of two factors",
    devices=5,
    targets={"sent": 1_040},
    arithmetic="""\
An update of 64 x 64 numbers takes 16,384 B. B has 4 x 64 numbers, 1,024 B, and 8 B for its second dimension. A seed
takes 8 B, because no message costs less: 1,040 B, a sixteenth (64 / 4) and a seed. If A, 64 x 4, were sent too, it
would be 2,048 B.
""",
    statement="""\
Device 0 is a server, devices 1 to 4 are clients. All have the same 'weights' w (64, 64) of a linear layer
x @ w. A client gets {'x': (8, 64), 'y': (8, 64), 'seed': a whole number below 2^32}, the server None.

A client's update, to be added to w, has to be a product A B of rank at most 4. A (64, 4) is drawn and stays fixed:

    coins = np.random.default_rng(seed).integers(0, 2, (64, 4))
    A = (2 * coins - 1).astype(np.float32)

B (4, 64) starts at zero and is trained for `steps` steps, B - rate * (the gradient with respect to B of the sum of (x @
(w + A B) - y)^2 / 2). The server does not know the seed, so a client has to send it; the server then draws A again. On
device 0, `forward` returns the update A B of each client, (4, 64, 64), as it has rebuilt them. Another size and rank
are also tried.
""",
    starter='''\
class LowRank(ShardedEngine):
    """Send one of two factors."""

    def __init__(self, dim, rank, rate, steps):
        """Make room for the weights, (dim, dim)."""
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
        "If both sides draw from the same seed, they have the same A. What does the seed cost?",
        "With G the gradient with respect to w, at w + A B, the gradient with respect to B is A.T @ G.",
        (
            "A client does `b -= rate * (a.T @ (x.T @ (x @ (w + a @ b) - y)))` in every step, then "
            "`self.send(0, np.uint32(seed))` and `self.send(0, b)`. The server gets `int(self.receive(client))`, draws "
            "A, and multiplies it with the B that it receives."
        ),
    ),
    concept="""\
This is a structured update: the search is confined to a few directions from the start, so the result needs no
compression. A new random A in every round and for every client reaches other directions each time, and A is never
sent. A random mask is the other structured update: a seed picks 256 of the 4,096 places, and only these are trained and
sent, 1,032 B. The mask belongs to the gradient of every step, not to the update at the end, because a later gradient
must not depend on changes that are dropped. Nothing is lost, so nothing is scaled up, unlike in Subsample.
""",
    in_practice="""\
Konečný et al. (2016) propose both to save uplink bandwidth on phones; training A as well worked no better for them.
Low-rank adapters for fine-tuning confine an update in the same way, to save memory.
""",
    sources=(FEDERATED_STRATEGIES,),
)
