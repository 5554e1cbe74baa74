"""A program for one device, and a few words about where its tensors live: the planner does the rest. Which words?"""

from puzzles.catalog.engine.chapter import Chapter

from . import annotated_mlp, annotated_moe

CHAPTER = Chapter(
    package=__name__,
    title="Say where, let the planner move",
    idea="the program is that of one device; which of its tensors must be annotated, and how?",
    puzzles=(annotated_mlp.PUZZLE, annotated_moe.PUZZLE),
)
