"""The examples stay with those who made them: what has to travel instead, and in how few bytes?"""

from puzzles.catalog.engine.chapter import Chapter

from . import compose, fed_avg, fed_sgd, low_rank, quantize, random_mask, rotate, subsample

CHAPTER = Chapter(
    package=__name__,
    title="Leave the data where it is",
    idea="clients keep their examples and send updates to a server; in how few bytes?",
    puzzles=(
        fed_sgd.PUZZLE,
        fed_avg.PUZZLE,
        low_rank.PUZZLE,
        random_mask.PUZZLE,
        subsample.PUZZLE,
        quantize.PUZZLE,
        rotate.PUZZLE,
        compose.PUZZLE,
    ),
)
