"""The plan track: how is a real training job divided over its cluster? A function returns a split, which is played and
measured."""

from typing import Any

from puzzles.catalog.plan import CHAPTER, PLAN_PUZZLES
from puzzles.tracks.base import Track


class Plans(Track[Any]):
    name = "plan"
    title = CHAPTER.title
    idea = CHAPTER.idea
    listing = PLAN_PUZZLES
    in_browser = True
    solutions = "plan"
