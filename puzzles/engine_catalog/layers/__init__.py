"""Every device has some of the layers: how are all of them kept busy?"""

from ..chapter import Chapter
from . import pipeline_inference

CHAPTER = Chapter(
    package=__name__,
    title="Split the layers",
    idea="every device has some layers; how are all of them kept busy?",
    puzzles=(pipeline_inference.PUZZLE,),
)
