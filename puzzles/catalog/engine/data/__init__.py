"""Chapter of data parallelism: each device has some rows of the batch, from replicated weights to ZeRO and FSDP."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the batch",
    idea="every device has some rows; how much of the model does it need to hold?",
    files={
        "DataParallel": "data_parallel",
        "OneBucket": "one_bucket",
        "RingAllReduce": "ring_all_reduce",
        "ParameterServer": "parameter_server",
        "ZeRO1": "zero1",
        "ZeRO2": "zero2",
        "FSDP": "fsdp",
        "UnevenFSDP": "uneven_fsdp",
        "ShardedAdam": "sharded_adam",
        "ZeROMemory": "zero_memory",
    },
)
