"""Renders a result as a small HTML page: stars, figures, message, the player's line, the picture, the next step.

Styles are inline, because notebooks drop style sheets. Colours are mixed with the page's own, so they work in light and
dark mode.
"""

from collections.abc import Sequence
from html import escape

from puzzles.tracks.outcomes import Measure, number_text

from .source_lines import SourceLine
from .words import ResultWords

COATS = ("#c98d4b", "#8a5a3b", "#e0b56c", "#6d6f76", "#b5653a", "#f0d9b0", "#4d4038", "#d8a47f")
IN_A_ROW = 8
WIDTH, HEIGHT = 74, 64

PUPPY_TEXT = r"""
   / \__
  (    @\___
  /         O     woof, woof, woof!
 /   (_____/
/_____/   U
"""


def smile(result: ResultWords) -> str:
    """SVG and a word of praise; empty for fewer than three stars."""
    if result.stars < 3:
        return ""
    ranks = result.track.devices(result.puzzle)
    columns = min(ranks, IN_A_ROW)
    rows = -(-ranks // IN_A_ROW)
    puppies = "".join(_puppy(rank, (rank % IN_A_ROW) * WIDTH, (rank // IN_A_ROW) * HEIGHT) for rank in range(ranks))
    words = escape(result.puzzle.praise)
    name = f"{ranks} wagging {'puppy' if ranks == 1 else 'puppies'}"
    return (
        f'<div class="three-stars"><svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" '
        f'height="{rows * HEIGHT}" role="img" aria-label="{name}">{puppies}</svg>'
        f'<p style="margin:2px 0 6px;font-style:italic">{words}</p></div>'
    )


def smile_text(result: ResultWords) -> str:
    return f"{PUPPY_TEXT}\n{result.puzzle.praise}" if result.stars == 3 else ""


def _puppy(rank: int, x: int, y: int) -> str:
    """A puppy looking to the right. Every second one wags faster; the ears are a darker shade of the coat."""
    coat = COATS[rank % len(COATS)]
    beat = f"{0.42 + 0.07 * (rank % 3):.2f}s"
    wag = (
        f'<animateTransform attributeName="transform" type="rotate" values="-24 16 36;24 16 36;-24 16 36" dur="{beat}" '
        'repeatCount="indefinite"/>'
    )
    hop = (
        f'<animateTransform attributeName="transform" type="translate" values="{x} {y};{x} {y - 3};{x} {y}" '
        f'dur="{0.9 + 0.13 * (rank % 4):.2f}s" repeatCount="indefinite"/>'
    )
    return (
        f'<g transform="translate({x},{y})">{hop}'
        f'<path d="M16 36Q5 30 7 18" fill="none" stroke="{coat}" stroke-width="5" stroke-linecap="round">{wag}</path>'
        f'<ellipse cx="29" cy="40" rx="17" ry="12" fill="{coat}"/>'
        f'<path d="M19 46v11M27 48v9M35 48v9M41 46v11" stroke="{coat}" stroke-width="5" stroke-linecap="round"/>'
        f'<circle cx="47" cy="25" r="13" fill="{coat}"/><ellipse cx="57" cy="30" rx="9" ry="6.5" fill="{coat}"/>'
        '<ellipse cx="65" cy="28" rx="2.8" ry="2.2" fill="#2b2320"/>'
        '<circle cx="51" cy="21" r="3.6" fill="#fff"/><circle cx="52" cy="21.4" r="2.1" fill="#2b2320"/>'
        '<path d="M57 35q3 9 6 0z" fill="#e5737d"/>'
        f'<path d="M40 14q-9 3-5 18q6 1 8-13z" fill="{coat}"/><path d="M40 14q-9 3-5 18q6 1 8-13z" opacity=".28"/></g>'
    )


COLOURS = {"passed": "#1a8754", "over_target": "#b7791f", "failed": "#c2410c", "not_attempted": "#64748b"}
CODE = "font-family:var(--jp-code-font-family,monospace);font-size:13px;line-height:1.45"
FAINT = "rgba(128,128,128,.14)"


def result_page(result: ResultWords, picture: str = "") -> str:
    """The whole page; `picture` is SVG."""
    colour = COLOURS[result.status]
    parts = [
        _head(result, colour),
        "".join(_meter(measure) for measure in measures_of(result)),
        message(result.message, colour),
        excerpt(result.place, colour),
        "".join(f'<p style="margin:6px 0;max-width:52em">Note: {inline(note)}</p>' for note in result.shown_notes),
        lines_block(result.shown_why),
        picture_frame(picture),
        smile(result),
        _reference(result),
        f'<p style="margin:8px 0 0;max-width:52em"><b>What next?</b> {inline(result.next_step)}</p>',
    ]
    frame = f"border-left:4px solid {colour};padding:6px 0 8px 14px;margin:4px 0"
    return f'<div class="training-puzzles" data-status="{result.status}" style="{frame}">{"".join(parts)}</div>'


def _reference(result: ResultWords) -> str:
    """The lines in which a solution that passed differs from the reference, folded; `Result.compare` draws both."""
    lines = lines_block(result.beside_reference) if result.status == "passed" else ""
    if not lines:
        return ""
    both = "<p><code>result.compare()</code> draws both runs.</p>" if result.track.has_pictures else ""
    return f"<details><summary>Show the reference next to yours</summary>{lines}{both}</details>"


def _head(result: ResultWords, colour: str) -> str:
    puzzle = result.puzzle
    stars = f'<span aria-label="{result.stars} of 3 stars" style="color:{colour}">{result.stars_text}</span>'
    title = escape(f"{result.name}, {puzzle.title}")
    return (
        f'<div style="font-size:19px;margin-bottom:4px">{stars} <b style="color:{colour}">{result.headline}</b> '
        f'<span style="opacity:.7">{title}</span></div>'
    )


def measures_of(result: ResultWords) -> list[Measure]:
    return list(result.track.measures(result.puzzle, result.values)) if result.values else []


def _meter(measure: Measure) -> str:
    """A figure as a bar, with a mark at its target."""
    value = measure.value or 0
    colour = COLOURS["passed" if measure.met else "over_target"]
    full = min(100, round(100 * value / (1.25 * (measure.target or 1))))
    bar = (
        f'<span style="position:relative;display:inline-block;width:180px;height:9px;background:{FAINT};'
        f'border-radius:5px;vertical-align:middle;margin-right:10px"><span style="position:absolute;left:0;top:0;'
        f'height:9px;width:{full}%;background:{colour};border-radius:5px"></span>'
        '<span style="position:absolute;left:80%;top:-3px;height:15px;border-left:2px solid currentColor"></span>'
        "</span>"
    )
    words = (
        f"<b>{number_text(value)}</b> {escape(measure.words)}, "
        f'<span style="opacity:.7">target {escape(measure.target_text)}</span>'
    )
    return f'<div style="margin:3px 0">{bar}{words}</div>'


def message(text: str, colour: str) -> str:
    """What is wrong; empty if nothing is."""
    if not text:
        return ""
    return f'<p style="margin:6px 0;max-width:52em;color:{colour};font-weight:600">{inline(text)}</p>'


def picture_frame(picture: str) -> str:
    """A picture that may be wider than the page."""
    return f'<div style="overflow-x:auto;margin:10px 0">{picture}</div>' if picture else ""


def excerpt(place: SourceLine, colour: str) -> str:
    """The player's line, highlighted, with the lines around it."""
    lines = place.excerpt()
    if not lines:
        return ""
    rows = []
    for number, code in lines:
        here = number == place.line
        mark = f"background:{FAINT};border-left:3px solid {colour}" if here else "border-left:3px solid transparent"
        rows.append(
            f'<div style="{mark};padding:0 8px"><span style="opacity:.5">{"▸" if here else " "}{number:>4}  </span>'
            f"{escape(code)}</div>"
        )
    return f'<div style="{CODE};white-space:pre;overflow-x:auto;margin:6px 0">{"".join(rows)}</div>'


def lines_block(shown: Sequence[str]) -> str:
    """Lines in columns; empty if there are none."""
    lines = "\n".join(shown)
    return f'<pre style="{CODE};overflow-x:auto;margin:6px 0">{escape(lines)}</pre>' if lines else ""


def inline(text: str) -> str:
    """Text with its backquoted parts as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return "`".join(pieces)
    return "".join(f'<code style="{CODE}">{piece}</code>' if i % 2 else piece for i, piece in enumerate(pieces))
