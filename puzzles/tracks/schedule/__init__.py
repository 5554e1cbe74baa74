"""The schedule track: when does each rank compute and communicate? One coroutine that every rank runs."""

from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle
from puzzles.tracks.base import References, Track, part


class Schedules(Track[SchedulePuzzle]):
    name = "schedule"
    title = "Schedules"
    idea = "who computes and sends what, and when?"
    listing = PUZZLES
    in_browser = True
    references: References[SchedulePuzzle] = part("References", "judge")

    def is_default(self, slug: str) -> bool:
        return slug in CLASSICS.slugs
