"""The engine track: who holds what, and who sends what? One class that every device runs on real tensors, with blocking
calls and plain numpy."""

from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle
from puzzles.tracks.base import Track


class Engine(Track[EnginePuzzle]):
    name = "engine"
    title = "On real tensors"
    idea = "who holds what, and who sends what?"
    listing = ENGINE_PUZZLES
    in_browser = True
    page_needs = ("numpy", "suspending")
    needs_trials = True
    solutions = "engine"
