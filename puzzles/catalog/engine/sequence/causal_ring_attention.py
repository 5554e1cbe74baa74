"""CausalRingAttention: ring attention with a causal mask and equal work on all devices."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import LLAMA_3, RING_ATTENTION, STRIPED_ATTENTION

PUZZLE = EnginePuzzle(
    slug="CausalRingAttention",
    title="A causal mask, with equal work for all",
    targets={"sent": 3_120, "messages": 3, "collectives": 0, "flops": 10_696, "peak": 5_248},
    arithmetic="""\
Bytes as in RingAttention: 3 x 1,040 = 3,120. The sequence has 2N = 8 chunks of 4 tokens. A chunk of queries and a
chunk of keys and values cost two products of 2 x 4 x 4 x 16 = 512 flops, 1,024. Chunk c sees c + 1 chunks, so
device i, with i and 2N - 1 - i, has (i + 1) + (2N - i) = 2N + 1 = 9 to compute, for every i: 9,216 flops. Each
corrects 4 x 16 numbers and 4 sums, 2 flops each, 9 x 136 = 1,224, and the end divides 8 x 16 numbers, 256: 10,696.
Computing everything and masking half of it takes 4N = 16. With the tokens in order, device i has chunks 2 i and
2 i + 1 and so 4 i + 3 to compute: the first device 3, the last one 15.

Memory peaks when the two chunks' results are joined: queries 512, the last keys and values 1,024, for each chunk its
sum of values 256, two numbers per query 32 and its result 256, and the joined result 512: 3,136 B. The target is the
same as for RingAttention, where full blocks are corrected.
""",
    statement="""\
As in RingAttention, but causal: a token sees itself and the tokens before it. If device i had the i-th tokens, the last
device would have several times as much work as the first. So the sequence is cut into 2N chunks of 4 tokens, and
device i has two of them: chunk i and chunk 2N - 1 - i, in this order.

`forward` gets 'q', (8, 16), and 'kv', (2, 8, 16), each for the tokens of your two chunks, and returns your tokens'
attention, (8, 16). The flops target allows only the chunks that are not masked: do not multiply a
chunk that is entirely masked. The other targets are the same as for RingAttention, again for 2, 4 and 8 devices.
""",
    starter='''\
class CausalRingAttention(ShardedEngine):
    """Causal attention with equal work on all devices."""

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """x: {'q': (8, 16), 'kv': (2, 8, 16)}, 4 tokens early and 4 late in the sequence. Returns (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Draw the 8 x 8 table of chunks against chunks, cross out what is masked, and fill in who computes what.",
        (
            "After r hops you hold what device (me - r) % N started with, so you know the places of its two chunks "
            "without being told. A chunk of keys is seen fully, partly, or not at all."
        ),
        (
            "Keep highest, total and mixed for each of your two chunks of queries, and compare places: skip a later "
            "chunk, use an earlier one in full, and mask one at the same place."
        ),
        (
            "The places of a device are `d` and `2 * n - 1 - d`. For the same place, use `scores = np.where(np.tri(4, "
            "dtype=bool), scores, -np.inf)` before taking the maximum: a token always sees itself, so no row is all "
            "-inf. `np.split(x['q'], 2)` gives the chunks; `np.concatenate` joins the results."
        ),
    ),
    concept="""\
A mask halves the work, but the slowest device determines the time. If every device gets an early and a late
chunk, all have the same work in every round of the ring: two pairs of chunks, and three in the first round.
""",
    in_practice="""\
Striped Attention (Brandon et al. 2023) noticed the imbalance, and distributes tokens one by one. Context parallelism
mostly uses an early and a late chunk per device, often called zigzag. The training of Llama 3 also puts chunks i and
2N - 1 - i on device i, but gathers keys and values instead of sending them around (Dubey et al. 2024).
""",
    sources=(STRIPED_ATTENTION, LLAMA_3, RING_ATTENTION),
)
