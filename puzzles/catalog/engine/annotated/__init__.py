"""Chapter of annotations: a single-device program, a few tensors annotated with layouts, and a planner for the rest."""

from puzzles.catalog.engine.chapter import Chapter

CHAPTER = Chapter(
    package=__name__,
    title="Say where, let the planner move",
    idea="the program is that of one device; which of its tensors must be annotated, and how?",
    files={
        "AnnotatedMLP": "annotated_mlp",
        "AnnotatedMoE": "annotated_moe",
    },
)
