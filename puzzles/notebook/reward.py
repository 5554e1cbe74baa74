"""The reward for three stars: one wagging puppy per rank. It is drawn here, so it needs no network."""

from html import escape

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
    """The same as plain text."""
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
