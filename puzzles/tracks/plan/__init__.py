"""The plan track: how is a real training job divided over its cluster? A function returns a split, which is played and
measured."""

from typing import Any

from puzzles.catalog.content import chapters
from puzzles.catalog.puzzle import Listing
from puzzles.tracks.base import Track

(CHAPTER,) = chapters("plan")

PLAN_PUZZLES: Listing[Any] = Listing([CHAPTER])


class Plans(Track[Any]):
    name = "plan"
    title = CHAPTER.title
    idea = CHAPTER.idea
    listing = PLAN_PUZZLES
    in_browser = True
    solutions = "plan"
