"""Chapter of tensor parallelism: each device has a part of each weight."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the tensors",
    idea="every device has a part of each weight; which parts fit together without communication?",
    files={
        "TensorParallel": "tensor_parallel",
        "SequenceParallel": "sequence_parallel",
        "Matmul2D": "matmul_2d",
        "MegatronLayer": "megatron_layer",
        "MegatronMesh": "megatron_mesh",
        "VocabParallelLoss": "vocab_parallel_loss",
    },
)
