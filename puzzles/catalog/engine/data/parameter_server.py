"""ParameterServer: workers push gradients at their own pace, and each server updates its part of the weights."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import BACKUP_WORKERS, DISTBELIEF, PARAMETER_SERVER

PUZZLE = EnginePuzzle(
    slug="ParameterServer",
    title="Nobody waits: stale gradients",
    devices=6,
    targets={"sent": 3_328, "messages": 26, "collectives": 0, "elapsed": 36_864},
    arithmetic="""\
A gradient takes two products, 4 x 16 x 64 = 4,096 flops for 16 examples and 12,288 for 48. Nine of the first or three
of the second take 36,864 flops of time, so no worker ever waits. If everyone waited for the slowest worker in each of
nine rounds, it would be 9 x 12,288 = 110,592.

Half of the weights is 32 x 4 = 128 B. A server receives 3 x 9 + 3 = 30 gradients, and sends its half after each but the
last one of each of the 4 workers: 26 messages, 26 x 128 = 3,328 B. A worker sends 9 x 2 halves, 2,304 B. A single
server would send 26 x 256 = 6,656 B. An answer to each last gradient, which nobody uses, would be 4 x 128 = 512 B more.
""",
    statement="""\
Devices 0 and 1 are *parameter servers*, and have no examples. Devices 2 to 5 are *workers* with examples of a linear
regression: 16, 16, 16 and 48 rows. All begin with the same weights, (64,). Server i keeps the i-th half of them. One
call of `forward` is the complete training, and each worker trains at its own pace. It repeats:

1. Compute the gradient of your average loss, `x.T @ (x @ w - y) / len(y)`, at the weights that you have.
2. Push each half of it to the server that has this half of the weights.
3. Fetch the weights: each server sends its half back as soon as it has applied your gradient. After your last
   gradient, fetch nothing.

A server applies each gradient when it arrives, `w = w - rate * gradient`, and waits for nobody else. So a gradient is
often *stale*: while it was computed, other workers' gradients have changed the weights.

A worker's `forward` gets {'x': (n, 64), 'y': (n,), 'steps': a number}, with the number of gradients that it computes:
9, or 3 with 48 rows. A server's gets {'order': a list of devices}, the order in which gradients arrive; it follows from
the workers' speeds. A server returns its half of the final weights, a worker None. The time of the training counts, in
flops. Other numbers of servers, workers and rows are also tried.

`params` holds the first 'weights', (64,).
""",
    starter='''\
class ParameterServer(ShardedEngine):
    """Nobody waits."""

    def __init__(self, dim, servers, rate):
        """Devices 0 to servers - 1 are servers, the others workers."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy 'weights' out of params: your part on a server, all of them on a worker."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: {'order'} on a server, which returns its weights; {'x', 'y', 'steps'} on a worker, which returns None."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Write a method for servers and one for workers. Which messages does one worker exchange with one server?",
        (
            "`self.receive(worker)` waits for this worker only. If the server receives in the given order, it takes "
            "each gradient when it arrives."
        ),
        (
            "A server has to know which gradient of a worker is the last one: count how often the worker is in "
            "`order`, and count down."
        ),
        (
            "Server: `for worker in order: self.w -= self.rate * self.receive(worker)`, then "
            "`self.send(worker, self.w)` unless it was the last. Worker: "
            "`for server, part in enumerate(np.split(grad, self.servers)): self.send(server, part)`, then "
            "`self.w = np.concatenate([self.receive(server) for server in range(self.servers)])`."
        ),
    ),
    concept="""\
No worker waits for another: 30 gradients take the time of 3 synchronous rounds, which would have only 12. The loss
falls from 3.42 to 0.68 instead of 0.95. The price is staleness. The slow worker's second gradient is applied 9 updates
after its weights were fetched, so the rate has to be small. With rate 1, the same 30 gradients reach a loss of 0.21 if
each is computed from the newest weights, and diverge if they are stale. Sharding the weights divides the servers'
traffic.
""",
    in_practice="""\
DistBelief (Dean et al. 2012) trained large networks like this on thousands of CPUs, and called it Downpour SGD. Li et
al. (2014) made the parameter server a general system, with a limit on staleness. With equally fast accelerators and
fast all-reduces, synchronous training became the rule again (Chen et al. 2016). Recommenders still keep large embedding
tables on parameter servers.
""",
    sources=(DISTBELIEF, PARAMETER_SERVER, BACKUP_WORKERS),
)
