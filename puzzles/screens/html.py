"""Reports as self-contained HTML pages. All is escaped but Markdown and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puzzles.failure import sanitized
from puzzles.judge.verdict import NOTHING_STATED, Graded, Scoring, Verdict
from puzzles.screens.feedback import achieved, details, story
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import capitalized, stars_text

from .standings import points_text, shown_size_mark, slugs_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


def text_html(text: str) -> str:
    """The text of a puzzle: CommonMark and tables, with HTML escaped."""
    return str(_markdown("commonmark", "table").render(text))


def message_html(text: str) -> str:
    """A message in one line: only `code` in backquotes is rendered, since links and pictures could be a player's."""
    return str(_markdown("zero", "backticks").renderInline(text))


@cache
def _markdown(preset: str, rule: str) -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt(preset, {"html": False}).enable(rule)


@cache
def environment() -> Any:
    """jinja2's environment, with the filters `message`, `markdown`, `stars`, `capitalized` and `picture`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("puzzles.screens"),
        autoescape=select_autoescape(("html", "svg")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["message"] = lambda text: Markup(message_html(text))
    made.filters["markdown"] = lambda text: Markup(text_html(text))
    made.filters["stars"] = stars_text
    made.filters["capitalized"] = capitalized
    made.filters["picture"] = Markup
    return made


def rendered(template: str, **content: Any) -> str:
    """The text that a template makes of its content."""
    return str(environment().get_template(template).render(**content))


def attempts(verdicts: Sequence[Verdict], colour: str = "layer") -> list[dict[str, Any]]:
    """The attempts in their order. Those that failed with the same message at the same line, such as a syntax error,
    are one, which names all their puzzles. `colour` is what the colours of operations show in the pictures."""
    found: dict[object, dict[str, Any]] = {}
    for v in sorted(verdicts, key=lambda v: not v.attempted):
        same = v.puzzle if v.figures else (v.message, v.source, v.line)
        if same not in found and (v.attempted or v.message):
            found[same] = _attempt(v, colour)
        elif v.attempted:
            found[same]["also"].append(named(v.puzzle))
    return list(found.values())


def _attempt(v: Verdict, colour: str) -> dict[str, Any]:
    track = track_of(v.puzzle)
    puzzle = track.puzzle(v.puzzle)
    passed = v.status == "passed"
    compared = " ".join(track.words.comparison(puzzle, v.figures, v.trace)) if passed else ""
    return {
        "verdict": v,
        "named": named(v.puzzle),
        "also": [],
        "measures": track.words.measures(puzzle, v.figures) if v.figures else (),
        "story": [*filter(None, (achieved(v), compared))] if passed else [],
        "hint": "" if passed or not puzzle.hints else puzzle.hints[0],
        "pictures": pictures(v, colour),
    }


def named(slug: str) -> tuple[str, str]:
    track = track_of(slug)
    return slug, track.words.heading(track.puzzle(slug))


def pictures(verdict: Verdict, colour: str) -> list[str]:
    """Pictures of a verdict that has its run, as SVG."""
    if not verdict.trace:
        return []
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    drawn = track.show.pictures(puzzle, verdict.trace, verdict.figures, colour)
    return [picture for picture in drawn if picture]


def report_page(
    graded: Sequence[Graded],
    colour: str = "layer",
    scoring: Scoring = NOTHING_STATED,
) -> str:
    """The page: a table, and for each attempt its verdict, message and pictures, in which colours show a `colour`."""
    files = [
        {
            "path": file.name or sanitized(file.path),
            "points": points_text(file, scoring) if scoring.is_stated else "",
            "verdicts": {v.puzzle: v for v in file.verdicts},
            "attempts": [_reported(v, colour) for v in file.verdicts if v.attempted or v.message],
        }
        for file in graded
    ]
    return rendered(
        "report.html",
        files=files,
        slugs=slugs_of(graded),
        mark=shown_size_mark,
        marked=next((m for f in graded for v in f.verdicts if (m := shown_size_mark(v))), ""),
        # There could be a picture, but the run was not kept.
        left_out=any(
            v.figures and not v.trace and track_of(v.puzzle).show.has_pictures for f in graded for v in f.verdicts
        ),
    )


def _reported(verdict: Verdict, colour: str) -> dict[str, Any]:
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    return {
        "verdict": verdict,
        "heading": track.words.heading(puzzle),
        "figures": track.words.figures_text(puzzle, verdict.figures) if verdict.figures else "",
        "story": [*story(verdict), *details(verdict)] if verdict.status == "passed" else [],
        "pictures": pictures(verdict, colour),
    }


def write(path: Path, content: Callable[[], str]) -> str:
    """Makes and writes a file; a sentence if that fails, whatever the reason."""
    try:
        text = content()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as why:
        return f"cannot write {sanitized(str(path))}: {why.strerror or why}"
    except Exception as why:  # a report that breaks must not affect the others
        return f"cannot make {sanitized(str(path))}: {sanitized(f'{type(why).__name__}: {why}')[:300]}"
    return ""
