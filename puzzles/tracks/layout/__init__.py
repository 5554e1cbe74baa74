"""The layout track: where does each tensor live? A function configures operators of a graph; propagation completes and
measures the plan."""

from typing import Any

from puzzles.catalog.content import chapters
from puzzles.catalog.puzzle import Listing
from puzzles.tracks.base import Track

(CHAPTER,) = chapters("layout")

LAYOUT_PUZZLES: Listing[Any] = Listing([CHAPTER])


class Layouts(Track[Any]):
    name = "layout"
    title = CHAPTER.title
    idea = CHAPTER.idea
    listing = LAYOUT_PUZZLES
    in_browser = True
    page_needs = ("numpy",)
    solutions = "layout"
