"""Chapter of pipelines and of sequence parallelism: each device has some of the layers, or some of the tokens."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the layers or the tokens",
    idea="every device has some layers, or some tokens of the sequence; how do all of them stay busy?",
    files={
        "LayerSplit": "layer_split",
        "PipelineInference": "pipeline_inference",
        "GPipeRemat": "gpipe_remat",
        "RingAttention": "ring_attention",
    },
)
