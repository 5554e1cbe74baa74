"""The list of all puzzles for the page, as JSON: chapters in the order of play, and what each puzzle shows."""

import inspect
import re
from pathlib import Path
from typing import Any

from drawing import palette
from lib import Model, run
from lib.pipelines import one_f_one_b, pipeline
from puzzles.catalog.path import AFTER, PATH
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES
from puzzles.custom import home_of
from puzzles.player.authoring import collective_svg
from puzzles.screens.html import message_html, rendered, text_html
from puzzles.tracks import TRACKS, Track, mark, place, reference_file
from puzzles.tracks.outcomes import capitalized
from puzzles.version import VERSION

from .in_browser.calls import is_played
from .in_browser.shown import rows_of, viewed

COLLECTIVES = {"all-reduce": "allreduce", "reduce-scatter": "scatterreduce", "all-gather": "allgather"}
"""By the name in texts, the name of its picture."""


def picture_of(track: Track[Any], puzzle: Puzzle) -> str:
    """The picture beside the statement: of the track's own kind, else of a collective that the puzzle is about."""
    own = track.show.sketch(puzzle, rendered)
    if own is not None:
        return own
    words = f"{puzzle.statement} {puzzle.concept} {puzzle.in_practice}".lower()
    named = [picture for name, picture in COLLECTIVES.items() if name in words]
    return collective_svg(named[0]) if named else ""


BY_HAND = (
    "pipeline", "gpipe", "one_f_one_b", "interleaved", "zb_h1", "breadth_first", "zb_h2", "zb_v", "v_half", "three_d",
)  # fmt: skip
"""Puzzles that can be played with a timetable, one microbatch at a time."""

WITHOUT_TIMETABLE = {
    "pipeline_fsdp": "each pipeline has one microbatch, so there is one order only",
    "two_ways": "its cells come in pairs, and a timetable by hand has one at a time",
    "weight_versions": "it is about several training steps, and a timetable is of one",
    "seq_pipeline": "its microbatches are shares of sequences, which come back in an order of their own",
    "vocab_parallel": "its head is on all ranks, and a timetable by hand has each layer on one",
    "frozen_encoder": "its stages have different numbers of layers, and a cell is one layer of each rank there",
    "uneven_stages": "its stages have different numbers of layers, and a cell is one layer of each rank there",
}
"""Why a puzzle on pipelines has none."""

INTERNAL = ("check", "finish", "join", "made")
"""Members of a model that no player needs."""

ATTRIBUTES = {
    "rank": "The number of this rank.",
    "RANKS": "How many ranks there are.",
    "LAYERS": "How many layers the model has.",
    "BATCHES": "How many microbatches a step has.",
    "weights": "Weights by layer, as stored on this rank.",
    "opt_states": "Optimizer states by layer.",
    "activations": "Activations by the layer that reads them.",
    "grad_activations": "Gradients of activations.",
    "grad_weights": "Gradients of weights by layer.",
    "parked": "Values on a memory tier, such as the host.",
}
"""Attributes that a model gets when it is made."""


def listing() -> dict[str, Any]:
    """All of it. `version` is the game's, and `dark` has the colours of sketches on a dark page."""
    puzzles = {slug: shown(track, track.puzzle(slug)) for track in TRACKS.values() for slug in track.slugs}
    sketches = " ".join(puzzle["picture"] for puzzle in puzzles.values()).lower()
    return {
        "version": VERSION,
        "chapters": [
            {"track": track.name, "name": group.name, "title": group.title, "idea": group.idea, "slugs": group.slugs}
            for track in TRACKS.values()
            for group in sorted(track.groups, key=lambda group: group.name != WARM_UP.name)
        ],
        "tracks": {track.name: {"title": track.title, "idea": track.idea} for track in TRACKS.values()},
        "path": [{"title": step.title, "slugs": step.slugs} for step in PATH],
        "after": AFTER,
        "compared": list(references()),
        "puzzles": puzzles,
        "model": [list(member(name)) for name in dir(Model) if not name.startswith("_") and name not in INTERNAL]
        + [[name, "", meaning] for name, meaning in ATTRIBUTES.items()],
        "dark": {"#fff": palette.dark_variant(palette.PAPER)}
        | {colour: palette.dark_variant(colour) for colour in sorted(set(re.findall(r"#[\da-f]{6}\b", sketches)))},
    }


def references() -> dict[str, str]:
    """The reference solution of each puzzle that is played in the browser. It is loaded when a player asks for it."""
    slugs = [slug for track in TRACKS.values() if track.in_browser for slug in track.slugs]
    return {slug: file.read_text(encoding="utf-8") for slug in slugs if (file := reference_file(slug))}


def pars() -> dict[str, dict[str, Any]]:
    """By puzzle, the interactive picture of its reference's run: what a player sees before anything has run."""
    warm_up = (WARM_UP / "solutions" / f"{WARM_UP.name}.py").read_text(encoding="utf-8")
    sources = {WARM_UP.name: warm_up, **references()}
    return {slug: view for slug in PUZZLES if slug in sources and (view := _par(slug, sources[slug]))}


def _par(slug: str, source: str) -> dict[str, Any] | None:
    names: dict[str, Any] = {}
    exec(source, names)
    goal = PUZZLES[slug].goal
    return viewed(run(names[slug], *goal.size, setting=goal.setting).trace, PUZZLES[slug].title, goal, "layer")


def shown(track: Track[Any], puzzle: Puzzle) -> dict[str, Any]:
    head, why = track.words.starter_head([puzzle]), WITHOUT_TIMETABLE.get(puzzle.slug)
    return {
        "slug": puzzle.slug,
        "track": track.name,
        "played": is_played(track, own=bool(home_of(puzzle.slug))),
        "needs": list(track.page_needs),
        "drawn": track.show.has_pictures,
        "saved": track.judge.is_saved,
        "title": puzzle.title,
        "heading": puzzle.title if home_of(puzzle.slug) else track.words.heading(puzzle),
        "limits": track.words.limits(puzzle),
        "mark": mark(puzzle.slug),
        "place": capitalized(place(puzzle.slug)),
        "statement": text_html(puzzle.statement),
        "setting": [list(map(message_html, row)) for row in track.words.setting_rows(puzzle)[1:]],
        "sections": [
            {"title": section.title, "lines": [[line, message_html(meaning)] for line, meaning in section.lines]}
            for section in track.words.sections(puzzle)
        ],
        "hints": list(map(text_html, puzzle.hints)),
        "starter": f"{head}\n\n{puzzle.starter}" if head else puzzle.starter,
        "background": [
            [title, text_html(text)]
            for title, text in (
                ("The idea", puzzle.concept),
                ("In practice", puzzle.in_practice),
                *track.words.background(puzzle),
            )
        ],
        "sources": [message_html(source) for source in track.words.sources(puzzle)],
        "picture": picture_of(track, puzzle),
        "timetable": puzzle.slug in BY_HAND,
        "no_timetable": f"This puzzle has no timetable by hand: {why}." if why else "",
        "rows": rows_of(puzzle.slug),
    }


def member(name: str) -> tuple[str, str, str]:
    """What the editor says of a model's member: its name, its parameters, and the first sentence of its docstring."""
    value = getattr(Model, name)
    given = [] if isinstance(value, property) else list(inspect.signature(value).parameters.values())[1:]
    parameters = ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in given)
    words = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return name, "" if isinstance(value, property) else f"({parameters})", words


WARM_UP = Path(__file__).parent / "warm_up"
"""The folder of the puzzle, whose chapter has its name."""


def first_run() -> dict[str, Any] | None:
    """The schedule that moves, as data for the interactive picture."""
    goal = PUZZLES["one_f_one_b"].goal
    trace = run(pipeline(one_f_one_b), *goal.size, setting=goal.setting).trace
    return viewed(trace, "One forward, one backward", goal, "microbatch")
