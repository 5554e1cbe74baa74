"""FedAvg: several local epochs between two rounds of averaging."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import FEDERATED_AVERAGING

PUZZLE = EnginePuzzle(
    slug="FedAvg",
    title="Train longer, talk less",
    devices=5,
    targets={"uplink": 9_360},
    arithmetic="""\
A client sends 64 weights and its number of examples, 65 x 4 = 260 B a round; four clients, 1,040 B. With 6
epochs a round, 9 rounds are enough for each of the three problems that are tried: 9,360 B. With one epoch a
round, which is FedSGD, they take 25, 25 and 29 rounds, up to 30,160 B; with 16, no number of rounds does:
they settle before 99%. To send the examples would take 256 x 260 = 66,560 B. What a least-squares solution
needs of them, the products x.T @ x (symmetric) and x.T @ y, would take 4 x (2,080 + 64) x 4 = 34,304 B.
""",
    statement="""\
As in FedSGD, device 0 is the server, and devices 1 to 4 are clients, with 128, 64, 32 and 32 examples: 'x'
(n, 64) and 'y' (n,). The loss is again the average of (x @ w - y)^2 / 2 over all 256. The clients' labels
follow somewhat different weights, so what is best for one is not best for all.

Now a single call of `forward` is the whole training: as many rounds as you like. In a round the server sends
the weights; each client trains them on its examples for E epochs, each a step w - rate * gradient of its own
average loss; the server takes the average of what comes back, weighted by numbers of examples. You choose E
and the number of rounds; they must do for three different problems. The server returns the weights, whose
loss must have come 99% of the way from that of the first weights (zeros) to the least possible. What all
clients together send is the score.
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
        "Begin with one epoch a round: that is FedSGD, and you can see how many rounds it needs.",
        (
            "More epochs make better use of a round, up to a point: each client walks towards the optimum of its own "
            "examples. Try E = 2, 4, 8, 16."
        ),
        (
            "A client sends `np.append(len(y) * w, np.float32(len(y)))` after its epochs, the server divides the sum "
            "of the weights by the sum of the numbers. E = 6 and 9 rounds meet the target; E = 16 never gets there."
        ),
    ),
    concept="""\
Computing is cheap for a client and sending is not, so it should do more between two rounds. But what is
averaged then are no longer gradients at one point. The more the clients' data differ, the further they drift
apart, and the average of their optima is not the optimum of all: E trades rounds against drift.
""",
    in_practice="""\
FedAvg (McMahan et al. 2017) is the usual method where data stays on phones: Google announced it for the
suggestions of its Gboard keyboard in 2017. Drift is what many later methods work against.
""",
    sources=(FEDERATED_AVERAGING,),
)
