"""Every device has some rows of the batch: what of weights, gradients and optimizer state does it have to hold?"""

from puzzles.catalog.engine.chapter import Chapter

from . import data_parallel, fsdp, fsdp_lean, one_bucket, ring_all_reduce, uneven_fsdp, zero1, zero2, zero_memory

CHAPTER = Chapter(
    package=__name__,
    title="Split the batch",
    idea="every device has some rows; how much of the model does it have to hold?",
    puzzles=(
        data_parallel.PUZZLE,
        one_bucket.PUZZLE,
        ring_all_reduce.PUZZLE,
        zero1.PUZZLE,
        zero2.PUZZLE,
        fsdp.PUZZLE,
        fsdp_lean.PUZZLE,
        uneven_fsdp.PUZZLE,
        zero_memory.PUZZLE,
    ),
)
