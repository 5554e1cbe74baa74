"""Every device has a part of each weight: which parts fit together without talking?"""

from ..chapter import Chapter
from . import sequence_parallel, tensor_parallel

CHAPTER = Chapter(
    package=__name__,
    title="Split the tensors",
    idea="every device has a part of each weight; which parts fit together without talking?",
    puzzles=(tensor_parallel.PUZZLE, sequence_parallel.PUZZLE),
)
