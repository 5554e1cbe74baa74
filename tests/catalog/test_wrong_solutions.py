"""Wrong solutions: each file gets what its first line says, for the reasons and with the facts of its other notes.

A file has code, or as `.diff` the edits of the reference. The notes at its beginning are `# SLUG: status or reason`, as
`puzzles check` asks; `# says: reason; fact=value`, of a sentence of the message, the advice or a note, by its name in
its table; `# facts: 3; receive(1)`, data that they show; `# figures: sent=6144`; `# misses: sent`, all that miss their
targets; and `# at: code`, of the line that is shown.
"""

import re
from pathlib import Path

import pytest

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.path import CORE
from puzzles.custom import EDITS, edited
from puzzles.judge.grader import grade_file
from puzzles.judge.submission import Submission
from puzzles.sandbox.limits import Limits
from puzzles.teaching.check import MIN_WRONG
from puzzles.teaching.writing import WRONG, expected_of, wrong_solutions
from puzzles.tracks import ALL, SHIPPED
from tests.catalog.lessons.tables import SKIPS
from tests.support.mistakes import code_of
from tests.support.selection import first_of_each_kind
from tests.support.verdicts import reasons_in, worded

FILES = sorted(path for path in WRONG.glob("*/*.*") if path.suffix in (".py", EDITS))
SAYS, FACTS, FIGURES, MISSES, AT = "# says: ", "# facts: ", "# figures: ", "# misses: ", "# at: "
WORDS = re.compile(r"\b[a-z]+ [a-z]+ [a-z]+\b")
PATIENT = Limits(seconds=200)
"""No mistake here is a loop without an end, and a loaded machine is slow."""


def kind_of(path: Path) -> tuple[str, str]:
    """The track, and what the file gets."""
    return ALL[path.parent.name].name, expected_of(path)


CASES = first_of_each_kind(((path,) for path in FILES), lambda case: kind_of(case[0]), every=40)
"""Of each track and outcome the first is quick, and then one in forty."""


def test_each_folder_is_named_after_a_puzzle() -> None:
    assert {path.name for path in WRONG.iterdir()} <= SHIPPED


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # an overflow is one of the mistakes
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_wrong_solution_gets_what_its_notes_say(path: Path) -> None:
    track = ALL[path.parent.name]
    puzzle = track.puzzle(path.parent.name)
    submission = Submission(path, code_of(path).encode())
    with worded() as sentences:
        (verdict,) = grade_file(str(path), [puzzle], PATIENT, submission=submission).verdicts
    figures = track.words.figures_text(puzzle, verdict.figures) if verdict.figures else ""
    said = " ".join([verdict.message, verdict.advice, *verdict.notes, figures])
    assert expected_of(path) in (verdict.status, verdict.reason), said
    assert verdict.status in ("failed", "over_target"), "this is no mistake"
    given = [
        (reason, {f"{name}={fact}" for name, fact in facts.items()})
        for reason, facts in reasons_in(said, sentences, puzzle)
    ]
    for wanted, *facts in (note.split("; ") for note in notes(path, SAYS)):
        assert any(reason == wanted and known.issuperset(facts) for reason, known in given), (wanted, facts, given)
    assert [fact for note in notes(path, FACTS) for fact in note.split("; ") if fact not in said] == [], said
    numbers = {f"{name}={number:.12g}" for name, number in verdict.figures.items()}
    assert [figure for note in notes(path, FIGURES) for figure in note.split("; ") if figure not in numbers] == [], (
        numbers
    )
    missed = ", ".join(sorted(one.figure for one in track.words.measures(puzzle, verdict.figures) if not one.met))
    assert [names for names in notes(path, MISSES) if names != missed] == [], missed
    assert [code for code in notes(path, AT) if code not in verdict.source] == [], verdict.source
    assert verdict.status != "failed" or not verdict.source.startswith("class "), "a class is no place of a mistake"


@pytest.mark.parametrize("kind", [SAYS, FACTS])
def test_notes_hold_data_and_no_sentences(kind: str) -> None:
    pieces = [(path.name, piece) for path in FILES for note in notes(path, kind) for piece in note.split("; ")]
    if kind == SAYS:
        pieces = [(name, piece.partition("=")[2]) for name, piece in pieces if "=" in piece]
    assert [piece for piece in pieces if WORDS.search(piece[1])] == []


def notes(path: Path, kind: str) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(kind) for line in lines if line.startswith(kind)]


def test_every_puzzle_has_wrong_solutions_or_solutions_that_skip_its_lesson() -> None:
    few = [slug for slug in SHIPPED if len(wrong_solutions(slug)) < MIN_WRONG and slug not in SKIPS]
    assert sorted(few) == LAYOUTS_WITHOUT
    assert [slug for slug in (*CORE, "host_update", "two_ways") if len(wrong_solutions(slug)) < 5] == []


LAYOUTS_WITHOUT = sorted(
    ["attention", "embedding_head", "fsdp_mlp", "gathers_everything", "mesh_2x3", "sequence_ends", "vocabulary_ends"]
)
"""Layouts with few or no wrong solutions: their tests ask the exact planner."""


@pytest.mark.parametrize(
    ("text", "line"), [("# ddp: rule\n-no such line\n+one\n", 2), ("-    a\n@@\n+    b\n", 3), ("-    a\n*    b\n", 2)]
)
def test_an_edit_that_fits_nowhere_is_named_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    reference, path = tmp_path / "reference.py", tmp_path / "mine.diff"
    reference.write_text("    a\n    b\n")
    path.write_text(text)
    with pytest.raises(OwnPuzzleError, match=f"mine.diff, line {line}: "):
        edited(reference, path)


def test_edits_are_applied_in_their_order(tmp_path: Path) -> None:
    reference, path = tmp_path / "reference.py", tmp_path / "mine.diff"
    reference.write_text("a\nc\na\ne\n")
    path.write_text("# a note\n-a\n+b\n@@\n c\n+d\n@@\n-a\n")
    assert edited(reference, path) == "b\nc\nd\ne\n"
