"""RingAttention: keys and values travel round a ring, with an online softmax."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import FLASH_ATTENTION, ONLINE_SOFTMAX, RING_ATTENTION

PUZZLE = EnginePuzzle(
    slug="RingAttention",
    title="Keys and values go round",
    targets={"sent": 3_072, "messages": 3, "collectives": 0, "flops": 16_384, "peak": 5_248},
    arithmetic="""\
A device's keys and values are 2 x 8 x 16 x 4 = 1,024 B; N - 1 = 3 hops send 3,072 B. Its 8 queries meet 8 keys
in each of N rounds, in two products of 2 x 8 x 8 x 16 = 2,048 flops: 4 x 4,096 = 16,384.

Peak, when the result is corrected: queries 512, a block of keys and values 1,024, scores and their
exponentials 2 x 256, the result as it was, corrected, what is added and the sum 4 x 512, four numbers for each
query 128: 4,224 B, whatever N is. The target leaves room for one more block of 1,024 B, your own. All keys and
values at once would be N x 1,024 B, and all scores N x 256 B.
""",
    statement="""\
A long sequence is split over the devices: device i has the i-th 8 tokens of 8 N. `forward` gets a dictionary:
'q', your queries, (8, 16), and 'kv', your keys and your values, (2, 8, 16). It returns your queries' attention
to the whole sequence, (8, 16): `softmax(q @ k.T / 4) @ v`, with the keys and values of all N devices; 4 is the root
of 16.

Let keys and values go round the ring, one message each hop, and no collectives. The memory target is the same
for 2, 4 and 8 devices, and the sequence grows with them: neither all keys nor all scores of a row may be there
at once. Scores go from about 100 down to -400, where exp overflows and underflows, and which device has a row's
highest is not known before. Results may differ from a single device's by 0.00001 of the largest number.
""",
    starter='''\
class RingAttention(ShardedEngine):
    """Keys and values go round."""

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
        "Begin without softmax: sum `q @ k.T @ v` over the blocks as they come by. What does softmax add to this?",
        (
            "Keep two sums for each query: of exp(score), and of exp(score) times value. Their quotient is the result. "
            "But exp(score) is too large: take off the highest score seen so far."
        ),
        (
            "When a new block has a higher score, both sums were made with too small a number taken off: multiply them "
            "by `exp(before - highest)` before you add the new block's. `highest` begins at -inf."
        ),
        (
            "Each round: `self.send((me + 1) % n, kv)`, compute with kv, `kv = self.receive((me - 1) % n)`; in the "
            "last round neither. Compute: `highest = np.maximum(before, scores.max(axis=1, keepdims=True))`, `p = "
            "np.exp(scores - highest)`, `total = total * shrunk + p.sum(axis=1, keepdims=True)`, `mixed = mixed * "
            "shrunk + p @ v`. Float32 throughout: `np.full(shape, -np.inf, dtype=np.float32)`."
        ),
    ),
    concept="""\
A softmax can be computed block by block: two sums, and the highest score so far, are all that one block needs to
know of those before it. So the context can grow with the number of devices, and the memory of each stays the same.
""",
    in_practice="""\
Ring Attention (Liu et al. 2023) sends a block while it computes with it: if the block is long enough, the ring is
free. The running maximum comes from Milakov and Gimelshein (2018); FlashAttention (Dao et al. 2022) does the same
with blocks within one device. In training, backward sends keys, values and their gradients round once more.
""",
    sources=(RING_ATTENTION, ONLINE_SOFTMAX, FLASH_ATTENTION),
)
