"""FedAvg: several local epochs between two averaging rounds."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_AVERAGING

PUZZLE = EnginePuzzle(
    slug="FedAvg",
    title="Train longer, communicate less",
    devices=5,
    targets={"uplink": 9_504},
    arithmetic="""\
A client sends 64 weights and its number of examples, 65 x 4 = 260 B per round; four clients, 1,040 B. In a message of
its own the number takes 8 B, and the target leaves room for that: 4 x 264 = 1,056 B. With 6 epochs per
round, 9 rounds are enough for each of the three problems that are tried: 9,504 B. With one epoch per round, which is
FedSGD, they take 25, 25 and 29 rounds, up to 30,160 B. With 16 epochs, no number of rounds is enough: the loss settles
before 99%. Sending the examples would take 256 x 260 = 66,560 B. What a least-squares solution needs of them, the
products x.T @ x (symmetric) and x.T @ y, would take 4 x (2,080 + 64) x 4 = 34,304 B.
""",
    statement="""\
As in FedSGD, device 0 is the server, and devices 1 to 4 are clients, with 128, 64, 32 and 32 examples: 'x' (n, 64) and
'y' (n,). The loss is again the average of (x @ w - y)^2 / 2 over all 256. The clients' labels follow slightly different
weights, so the best weights for one client are not the best for all.

Now a single call of `forward` is the whole training, with as many rounds as you like. In a round, the server sends the
weights. Each client trains them on its examples for E epochs, each a step w - rate * gradient of its own average loss.
The server averages the results, weighted by numbers of examples. You choose E and the number of rounds; they must work
for three different problems. The server returns the weights. Their loss must have gone 99% of the way from the loss of
the first weights (zeros) to the minimum. Your score is what all clients send together.

`params` holds the first 'weights', (64,).
""",
    starter='''\
class FedAvg(ShardedEngine):
    """Train longer, talk less."""

    def __init__(self, dim, rate):
        """Make room for the weights, (dim,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy 'weights' out of params."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, examples):
        """None on device 0; {'x': (n, dim), 'y': (n,)} on a client. Device 0 returns the trained weights, (dim,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Start with one epoch per round. That is FedSGD, and you see how many rounds it needs.",
        (
            "More epochs make better use of a round, up to a point: each client moves towards the optimum of its own "
            "examples. Try E = 2, 4, 8, 16."
        ),
        (
            "After its epochs, a client sends `np.append(len(y) * w, np.float32(len(y)))`; the server divides the sum "
            "of the weights by the sum of the numbers. E = 6 and 9 rounds meet the target; E = 16 never gets there."
        ),
    ),
    concept="""\
For a client, computing is cheap and sending is expensive, so it should do more between two rounds. But then the server
no longer averages gradients at one point. The more the clients' data differ, the further the clients drift apart, and
the average of their optima is not the optimum of all examples. E trades rounds against drift.
""",
    in_practice="""\
FedAvg (McMahan et al. 2017) is the standard method where data stays on phones: Google announced it for the suggestions
of its Gboard keyboard in 2017. Many later methods try to reduce the drift.
""",
    sources=(FEDERATED_AVERAGING,),
)
