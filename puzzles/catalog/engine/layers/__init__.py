"""Every device has some of the layers: how are all of them kept busy?"""

from puzzles.catalog.engine.chapter import Chapter

from . import gpipe_remat, layer_split, pipeline_inference

CHAPTER = Chapter(
    package=__name__,
    title="Split the layers",
    idea="every device has some layers; how are all of them kept busy?",
    puzzles=(layer_split.PUZZLE, pipeline_inference.PUZZLE, gpipe_remat.PUZZLE),
)
