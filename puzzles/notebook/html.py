"""A result as a small HTML page, from the template `notebook.html` of the reports; and the reward as text."""

from .words import ResultWords

PUPPY_TEXT = r"""
   / \__
  (    @\___
  /         O     woof, woof, woof!
 /   (_____/
/_____/   U
"""


def rendered(part: str, *given: object) -> str:
    """What a macro of the template makes of its arguments."""
    from puzzles.reports.html import environment  # here, because it loads rich, and a browser has no jinja2

    return str(getattr(environment().get_template("notebook.html").module, part)(*given))


def result_page(result: ResultWords, picture: str = "") -> str:
    """The whole page; `picture` is SVG."""
    return rendered("page", result, picture)


def smile_text(result: ResultWords) -> str:
    return f"{PUPPY_TEXT}\n{result.puzzle.praise}" if result.stars == 3 else ""
