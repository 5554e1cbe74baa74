"""Chapter of sequence parallelism: each device has some tokens, and attention needs all of them."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the sequence",
    idea="every device has some tokens; how does each token see all the others?",
    files={
        "RingAttention": "ring_attention",
    },
)
