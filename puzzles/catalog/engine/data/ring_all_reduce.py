"""RingAllReduce: all-reduce from send and receive."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import RING_ALL_REDUCE

PUZZLE = EnginePuzzle(
    slug="RingAllReduce",
    title="All-reduce from send and receive",
    targets={"sent": 12_288, "messages": 6, "collectives": 0, "peak": 16_383},
    arithmetic="""\
S = 2,048 x 4 = 8,192 B in N = 4 parts of 2,048 B. Twice around the ring, N-1 messages each time: 2 x 3 x
2,048 = 12,288 B in 6 messages. Two buffers are 16,384 B; the array and one part that has just come are
10,240 B.
""",
    statement="""\
`forward` gets an array of 2,048 numbers, 8,192 B, on each device, and returns the sum of all devices'
arrays on each. Use only `send` and `receive`: no collectives.

Everybody sends its whole array to everybody else: that would be 3 x 8,192 B. A ring does with half, and
needs less than two buffers at a time. You may write into `x`; it is yours.
""",
    starter='''\
class RingAllReduce(ShardedEngine):
    """All-reduce from send and receive."""

    def load_checkpoint(self, params):
        """There are no parameters."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your array, (2048,). Returns the sum of all devices' arrays."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        (
            "Cut the array into as many parts as there are devices. Which device should be the first to know the "
            "whole sum of part 0?"
        ),
        (
            "In round r, send one part to the right and add the one that comes from the left to yours. After N - 1 "
            "rounds every device has one part whole."
        ),
        (
            "In round r of the first turn device i sends part (i - r) mod N and adds what it receives to part (i - "
            "r - 1) mod N; in the second turn it sends part (i - r + 1) mod N and writes what it receives over part "
            "(i - r) mod N. `np.split` gives views, so `parts[k] += self.receive(left)` works on `x` itself."
        ),
    ),
    concept="""\
A reduce-scatter and an all-gather, each once around the ring. Every device sends 2(N-1)/N of its array, and
no algorithm can send less (Patarasuk and Yuan 2009).
""",
    in_practice="""\
NCCL and Horovod use this ring for large arrays, and trees for small ones, where the 2(N-1) steps of latency
would dominate.
""",
    sources=(RING_ALL_REDUCE,),
)
