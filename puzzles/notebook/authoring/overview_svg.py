"""Overview picture of a schedule puzzle, from its sketch."""

from base64 import b64encode

from drawing.palette import layer_colour
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.reports.html import rendered


def overview_svg(puzzle: SchedulePuzzle) -> str:
    """The picture; empty if the puzzle has no sketch."""
    if puzzle.sketch is None:
        return ""
    layers, _, ranks = puzzle.goal.size
    colours = [layer_colour(layer, layers) for layer in range(layers)]
    return rendered("overview.svg", sketch=puzzle.sketch, layers=layers, ranks=ranks, colours=colours)


def overview_markdown(puzzle: SchedulePuzzle) -> str:
    """The picture within Markdown; empty if the puzzle has no sketch."""
    picture = overview_svg(puzzle)
    data = b64encode(picture.encode()).decode()
    return f"![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,{data})" if picture else ""
