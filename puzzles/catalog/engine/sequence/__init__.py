"""Every device has some tokens: how does each of them see all the others?"""

from puzzles.catalog.engine.chapter import Chapter

from . import causal_ring_attention, ring_attention

CHAPTER = Chapter(
    package=__name__,
    title="Split the sequence",
    idea="every device has some tokens; how does each of them see all the others?",
    puzzles=(ring_attention.PUZZLE, causal_ring_attention.PUZZLE),
)
