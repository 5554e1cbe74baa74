"""Chapter of annotations: a single-device program, a few tensors annotated with layouts, and a planner for the rest."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Annotate, and let the planner move",
    idea="the program is written for one device; which of its tensors do you have to annotate, and how?",
    files={
        "AnnotatedMLP": "annotated_mlp",
        "AnnotatedMoE": "annotated_moe",
    },
)
