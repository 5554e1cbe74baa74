"""RingAttention: keys and values go around a ring, with an online softmax."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import ONLINE_SOFTMAX
from puzzles.catalog.papers import FLASH_ATTENTION, RING_ATTENTION

PUZZLE = EnginePuzzle(
    slug="RingAttention",
    title="Keys and values go around a ring",
    targets={"sent": 3_120, "messages": 3, "collectives": 0, "flops": 17_728, "peak": 5_248},
    arithmetic="""\
A device's keys and values are 2 x 8 x 16 x 4 = 1,024 B. A message of an array with three dimensions has 16 B more, and
N - 1 = 3 hops send 3 x 1,040 = 3,120 B. Its 8 queries meet 8 keys in each of N rounds, in two products of 2 x 8 x 8 x
16 = 2,048 flops: 4 x 4,096 = 16,384. Element by element, a product or quotient takes 2 flops: each round corrects 8 x
16 numbers and 8 sums, 4 x 272 = 1,088, and the end divides 8 x 16, 256. Together 17,728.

Memory peaks when the result is corrected: queries 512, a block of keys and values 1,024, scores and their
exponentials 2 x 256, the old result, the corrected one, what is added and the sum 4 x 512, four numbers per query
128: 4,224 B, for any N. The target leaves room for one more block of 1,024 B, your own. All keys and values together
would be N x 1,024 B, and all scores N x 256 B.
""",
    statement="""\
A long sequence is split over the devices: device i has the i-th 8 tokens of 8 N. `forward` gets a dictionary: 'q',
your queries, (8, 16), and 'kv', your keys and values, (2, 8, 16). It returns your queries' attention to the full
sequence, (8, 16): `softmax(q @ k.T / 4) @ v`, with the keys and values of all N devices; 4 is the square root of 16.

Pass keys and values around the ring, one message per hop, without collectives. The memory target is the same for 2, 4
and 8 devices, although the sequence grows with them, so you can't hold all keys or all scores of a row at the same
time. Scores go from about 100 down to -400, where exp overflows and underflows, and you don't know in advance which
device has a row's highest score. """,
    starter='''\
class RingAttention(ShardedEngine):
    """Keys and values go around a ring."""

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """x: {'q': (8, 16), 'kv': (2, 8, 16)}. Returns (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Start without softmax: sum `q @ k.T @ v` over the blocks as they arrive. What does softmax add to this?",
        (
            "Keep two sums for each query: of exp(score), and of exp(score) times value. Their quotient is the result. "
            "But exp(score) is too large, so subtract the highest score seen so far."
        ),
        (
            "If a new block has a higher score, both sums used too small a maximum. Multiply them by "
            "`exp(before - highest)` before you add the new block's. `highest` starts at -inf."
        ),
        (
            "Each round: `self.send((me + 1) % n, kv)`, compute with kv, `kv = self.receive((me - 1) % n)`; in the "
            "last round, don't send or receive. Compute: `highest = np.maximum(before, scores.max(axis=1, "
            "keepdims=True))`, `p = np.exp(scores - highest)`, `total = total * shrunk + p.sum(axis=1, "
            "keepdims=True)`, `mixed = mixed * shrunk + p @ v`. Float32 throughout: `np.full(shape, -np.inf, "
            "dtype=np.float32)`."
        ),
    ),
    concept="""\
A softmax can be computed block by block: a block needs only two sums and the highest score of the earlier blocks. So
the context can grow with the number of devices, while the memory of each stays the same.
""",
    in_practice="""\
Ring Attention (Liu et al. 2023) sends a block while it computes with it: if the block is long enough, the
communication is hidden. The running maximum is due to Milakov and Gimelshein (2018). FlashAttention (Dao et al. 2022)
does the same with blocks within one device. In training, backward sends keys, values and their gradients around again.
""",
    sources=(RING_ATTENTION, ONLINE_SOFTMAX, FLASH_ATTENTION),
)
