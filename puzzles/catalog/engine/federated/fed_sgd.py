"""FedSGD: clients' gradients, averaged with weights by their numbers of examples."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import FEDERATED_AVERAGING

PUZZLE = EnginePuzzle(
    slug="FedSGD",
    title="Weight every client by its examples",
    devices=5,
    targets={"uplink": 576},
    arithmetic="""\
A client sends a gradient of 16 numbers and its number of examples: 17 x 4 = 68 B, or 72 B with the number in a message
of its own, because no message costs less than 8 B. Four clients, two rounds: 2 x 4 x 72 = 576 B. The 8 examples of a
round, 17 numbers each, would be 8 x 68 = 544 B per round. What the server sends, 4 x 64 B per round, is not counted,
because uplinks are the bottleneck.
""",
    statement="""\
Device 0 is a server and has no data. Devices 1 to 4 are its clients; their examples stay with them. All start with the
same 'weights' (16,), and each call of `forward` is one round of training. The server gets None. A client gets
{'x': (n, 16), 'y': (n,)}, where n differs: 4, 2, 1 and 1 examples in the first round, 1, 1, 2 and 4 in the next. Only
the client knows its n.

The loss is the average of (x @ w - y)^2 / 2 over all examples of all clients. Take one step of gradient descent,
w - rate * gradient, the same step that a single device with all the examples would take. `forward` returns the new
weights on every device. Other numbers of weights and examples are also tried.
""",
    starter='''\
class FedSGD(ShardedEngine):
    """Weigh every client by its examples."""

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
        """None on device 0; {'x': (n, dim), 'y': (n,)} on a client. Returns the new weights, (dim,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "A client with four examples should count four times as much as a client with one example.",
        (
            "An average of averages is wrong if the groups differ in size. Sums can be added up, and so can numbers "
            "of examples."
        ),
        (
            "A client sends `np.append(x.T @ (x @ w - y), np.float32(len(y)))`, 17 numbers of four bytes (without "
            "`np.float32` they take eight). The server adds up all four, and divides the first 16 by the last."
        ),
    ),
    concept="""\
The loss is an average over examples, so its gradient is the sum of the clients' gradients, each weighted by its share
n_k / n of the examples. With these weights it doesn't matter where the data is: one round is one step on all of it.
Without them, a client with little data has as much influence as one with a lot.
""",
    in_practice="""\
McMahan et al. (2017) call this FedSGD, and use it as the baseline that FedAvg has to beat. Real clients are phones. A
round asks some of them, and leaves out those that do not answer in time.
""",
    sources=(FEDERATED_AVERAGING,),
)
