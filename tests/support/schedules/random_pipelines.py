"""Random legal pipelines: a textbook's order with some neighbours exchanged, as far as it can still be played."""

import random

from lib import PuzzleError, Setting, Trace
from lib import pipelines as schedules
from lib.pipelines import Timetable, pipeline
from tests.support import finished

TEXTBOOKS = ("gpipe", "one_f_one_b", "zb_h1", "zb_h2", "interleaved", "breadth_first", "zb_v", "dualpipev") + (
    ("eager_1f1b", "hanayo", "v_half", "v_min")
)


def textbook(name: str, p: int, m: int) -> Timetable | None:
    """An order by its name; None where it does not exist."""
    try:
        return getattr(schedules, name)(p, m)  # type: ignore[no-any-return]
    except PuzzleError:
        return None


def exchanged(table: Timetable, choice: random.Random) -> Timetable:
    """The order after up to twelve exchanges of neighbours on a rank; those that could not be played are left out."""
    for _ in range(choice.choice((0, 1, 1, 2, 4, 12))):
        rows = [list(row) for row in table.rows]
        row = choice.choice(rows)
        at = choice.randrange(len(row) - 1)
        row[at], row[at + 1] = row[at + 1], row[at]
        try:
            table = Timetable.of(rows)
        except PuzzleError:
            continue
    return table


def random_pipeline(seed: int) -> Timetable:
    """An order of two to four ranks and up to six microbatches."""
    choice = random.Random(seed)
    while True:
        table = textbook(choice.choice(TEXTBOOKS), choice.randint(2, 4), choice.choice((2, 3, 4, 4, 6, 6)))
        if table is not None:
            return exchanged(table, choice)


def played(table: Timetable, depth: int = 1, steps: int = 1, costs: str = "parts") -> Trace:
    """The run of an order, with so many layers in a stage."""
    size = table.stages * depth, table.batches, table.ranks
    return finished(pipeline(table), *size, setting=Setting(costs, steps=steps)).trace
