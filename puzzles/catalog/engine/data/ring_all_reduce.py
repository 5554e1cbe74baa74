"""RingAllReduce: an all-reduce built from send and receive."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import RING_ALL_REDUCE

PUZZLE = EnginePuzzle(
    slug="RingAllReduce",
    title="All-reduce from send and receive",
    targets={"sent": 12_288, "messages": 6, "collectives": 0, "peak": 16_383},
    arithmetic="""\
S = 2,048 x 4 = 8,192 B in N = 4 parts of 2,048 B. The parts go around the ring twice, in N-1 messages each time: 2 x 3
x 2,048 = 12,288 B in 6 messages. Two full arrays are 16,384 B; one array and a part that has just arrived are 10,240 B.
""",
    statement="""\
`forward` gets an array of 2,048 numbers, 8,192 B, on each device, and returns the sum of all devices' arrays on
every device. Use only `send` and `receive`, no collectives.

If every device sent its full array to every other device, each would send 3 x 8,192 B. A ring sends only half as much,
and needs less memory than two full arrays. You may write into `x`.
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
            "Cut the array into as many parts as there are devices. Which device should be the first to have the "
            "complete sum of part 0?"
        ),
        (
            "In round r, send one part to the next device, and add the part that you receive to your own part. After "
            "N - 1 rounds every device has the complete sum of one part."
        ),
        (
            "In round r of the first trip, device i sends part (i - r) mod N and adds what it receives to part (i - "
            "r - 1) mod N. In the second trip it sends part (i - r + 1) mod N and overwrites part (i - r) mod N with "
            "what it receives. `np.split` returns views, so `parts[k] += self.receive(left)` changes `x` itself."
        ),
    ),
    concept="""\
This is a reduce-scatter followed by an all-gather, each once around the ring. Every device sends 2(N-1)/N times
the size of its array, and no algorithm can send less (Patarasuk and Yuan 2009).
""",
    in_practice="""\
NCCL and Horovod use this ring for large arrays. For small ones they use trees, because the latency of 2(N-1)
steps would dominate.
""",
    sources=(RING_ALL_REDUCE,),
)
