"""Chapter of data parallelism: each device has some rows of the batch, and all weights."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the batch",
    idea="every device has some rows of the batch and all weights; how do gradients meet?",
    files={
        "DataParallel": "data_parallel",
        "OneBucket": "one_bucket",
        "RingAllReduce": "ring_all_reduce",
        "ParameterServer": "parameter_server",
    },
)
