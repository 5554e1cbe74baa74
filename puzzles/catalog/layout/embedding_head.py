"""Layout puzzle 6: an embedding table that is shared with the output head."""

from lib.layout.examples import embedding_and_head
from puzzles.catalog.papers import SHARDING_PROPAGATION, TIED_EMBEDDING

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="embedding_head",
    title="Embedding and head",
    build=embedding_and_head,
    annotations=3,
    memory_cap=52_000,
    target=178_176,
    best=178_176,
    least=163_840,
    statement="""\
`embed` gathers rows of a table of 512 words by token number, `hidden` and `gelu` work on them, and `head` multiplies
by the same table to compute a score for each word. The layout of the table is the one that `embed`, its first user,
needs.

If the words are split, a device finds only some of the tokens, gets zeros for the rest, and the results are summed. If
the columns are split, every device finds all tokens and has a part of each row. Configure three operators.
""",
    starter='''\
def embedding_head(graph: Graph) -> None:
    """embed, hidden, gelu, head; embed and head share one table."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "A full copy of the table takes more memory than the cap allows. Split its words over as many devices as you "
        "can for `head`, because its output is the largest tensor of all.",
        "`embed` can split its columns over 8 devices without an all-reduce. What does `head` then pay for the table?",
        "Move small tensors: split the tokens in 8 for `hidden` and the words in 4 for `head`, and let `embed` keep "
        'the table where it is smallest. `graph.shard("embed", ((8, 1), (1, 1)))` needs a sum; try '
        '`((1, 8), (1, 1))`, then `graph.shard("hidden", ((1, 8, 1), (1, 1)))` and '
        '`graph.shard("head", ((1, 2, 1), (4, 1)))`.',
    ),
    concept="""\
Two operators read a tied table, each in a layout of its own. The stored layout decides which of them pays. The scores
for all words are much larger than anything else, so split them and never move them.
""",
    in_practice="""\
Press and Wolf (2017) introduced the shared table. Large vocabularies are usually split by words over the
tensor-parallel devices, and the loss is computed on the split scores, so that they are never gathered.
""",
    sources=(TIED_EMBEDDING, SHARDING_PROPAGATION),
)
