"""Every device has a part of each weight: which parts fit together without talking?"""

from puzzles.catalog.engine.chapter import Chapter

from . import matmul_2d, megatron_layer, sequence_parallel, tensor_parallel, vocab_parallel_loss

CHAPTER = Chapter(
    package=__name__,
    title="Split the tensors",
    idea="every device has a part of each weight; which parts fit together without talking?",
    puzzles=(
        tensor_parallel.PUZZLE,
        sequence_parallel.PUZZLE,
        matmul_2d.PUZZLE,
        megatron_layer.PUZZLE,
        vocab_parallel_loss.PUZZLE,
    ),
)
