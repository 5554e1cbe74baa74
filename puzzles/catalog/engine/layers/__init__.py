"""Chapter of pipeline parallelism: each device has some of the layers."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the layers",
    idea="every device has some layers; how do you keep all of them busy?",
    files={
        "LayerSplit": "layer_split",
        "PipelineInference": "pipeline_inference",
        "GPipeRemat": "gpipe_remat",
    },
)
