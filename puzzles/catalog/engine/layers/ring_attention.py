"""RingAttention: keys and values go around a ring, with an online softmax, and with a causal mask."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import ONLINE_SOFTMAX
from puzzles.catalog.papers import FLASH_ATTENTION, LLAMA_3, RING_ATTENTION, STRIPED_ATTENTION

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

With a causal mask the sequence has 2N = 8 chunks of 4 tokens. A chunk of queries and a chunk of keys and values cost
two products of 2 x 4 x 4 x 16 = 512 flops, 1,024. Chunk c sees c + 1 chunks, so device i, with i and 2N - 1 - i, has
(i + 1) + (2N - i) = 2N + 1 = 9 to compute, for every i: 9,216 flops. Each corrects 4 x 16 numbers and 4 sums, 2 flops
each, 9 x 136 = 1,224, and the end divides 8 x 16 numbers, 256: 10,696. If everything is computed and then masked, it is
4N = 16 instead of 9. With the tokens in order, device i would have 4 i + 3 to compute: the first 3, the last one 15.
""",
    statement="""\
A long sequence is split over N devices, 8 tokens each. `forward` gets a dictionary: 'q', your queries, (8, 16), and
'kv', your keys and values, (2, 8, 16). It returns your queries' attention to all tokens, (8, 16): `softmax(q @ k.T / 4)
@ v`, with the keys and values of all devices.

Pass keys and values around the ring, one message per hop, without collectives. The memory target is the same for 2, 4
and 8 devices, so you can't hold all keys at the same time. Scores go from about 100 to -400, where exp overflows and
underflows. No device knows in advance which one has a row's highest score.

In the first part `causal` is False, and the order of the tokens does not matter. In the second part a token sees itself
and the tokens before it. For equal work the sequence is cut into 2N chunks of 4 tokens, and device i has the i-th from
the start and the i-th from the end. The flops target of this part, 10,696, leaves room only for pairs of chunks that
are not entirely masked.
""",
    starter='''\
class RingAttention(ShardedEngine):
    """Keys and values go around a ring."""

    def __init__(self, causal):
        """True in the second part: a token sees no later tokens."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """x: {'q': (8, 16), 'kv': (2, 8, 16)}; if causal, 4 early tokens and 4 late ones. Returns (8, 16)."""
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
        (
            "The second part: draw the 8 x 8 table of chunks against chunks, cross out what is masked, and fill in who "
            "computes what. After r hops you hold what device (me - r) % N started with, so you know the places of its "
            "two chunks, `d` and `2 * n - 1 - d`, without being told."
        ),
        (
            "Keep highest, total and mixed for each of your two chunks of queries, `np.split(x['q'], 2)`. Skip a later "
            "chunk of keys, use an earlier one in full, and mask one at the same place: "
            "`np.where(np.tri(4, dtype=bool), scores, -np.inf)`."
        ),
    ),
    concept="""\
A softmax can be computed block by block: a block needs only two sums and the highest score of the earlier blocks. So
the context can grow with the number of devices, while the memory of each stays the same.

A causal mask halves the work, but the slowest device determines the time. If every device gets an early and a late
chunk, all have the same work in every round of the ring: two pairs of chunks, and three in the first round.
""",
    in_practice="""\
Ring Attention (Liu et al. 2023) sends a block while it computes with it: if the block is long enough, the
communication is hidden. The running maximum is due to Milakov and Gimelshein (2018). FlashAttention (Dao et al. 2022)
does the same with blocks within one device. In training, backward sends keys, values and their gradients around again.

Striped Attention (Brandon et al. 2023) noticed the imbalance of a causal mask, and distributes tokens one by one.
Context parallelism mostly uses an early and a late chunk per device, often called zigzag. The training of Llama 3 also
puts chunks i and 2N - 1 - i on device i, but gathers keys and values instead of sending them around (Dubey et al.
2024).
""",
    sources=(RING_ATTENTION, ONLINE_SOFTMAX, FLASH_ATTENTION, STRIPED_ATTENTION, LLAMA_3),
)
