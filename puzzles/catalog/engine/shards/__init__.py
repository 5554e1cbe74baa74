"""Chapter of sharded data parallelism, from ZeRO's stages to FSDP: no device holds the model and its states in full."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Shard the model",
    idea="every device has some rows of the batch; how much of the model does it need to hold?",
    files={
        "ZeRO1": "zero1",
        "ZeRO2": "zero2",
        "FSDP": "fsdp",
        "UnevenFSDP": "uneven_fsdp",
        "ShardedAdam": "sharded_adam",
        "ZeROMemory": "zero_memory",
    },
)
