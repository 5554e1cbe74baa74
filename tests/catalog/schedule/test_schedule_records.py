"""Every record has a solution file, its figures and its family; no other record of that family beats it."""

from __future__ import annotations

import re

import pytest

from lib import Record, referee
from lib.ledger.family import FAMILIES, MIXED
from puzzles.catalog.content import placed
from puzzles.catalog.path import CORE, TRICKS
from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle
from puzzles.judge.grader import grade_file
from puzzles.player.play import play
from tests.support.ideas import SHOWN, ideas_shown
from tests.support.solved import RECORDS, SOME_RECORDS, played, record_name, reference_of, solved_by
from tests.support.variants import ROOT, module_of

FILES = [f"solutions/records/{path.name}" for path in sorted((ROOT / "solutions" / "records").glob("[!_]*.py"))]
VARIED = [file for file in FILES if hasattr(module_of(file), "VARIANTS")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("record", RECORDS, ids=record_name)
def test_a_record_has_exactly_its_figures_and_its_family(record: Record) -> None:
    found = list(solved_by(record))
    assert found
    for puzzle, function in found:
        assert record in puzzle.goal.records
        report = referee(played(puzzle, function).trace, puzzle.goal)
        assert (report.error, report.timesteps, report.peak.memory, report.traffic) == (None, *record.figures)
        assert report.family == record.family
        assert not any(note.costs_a_star for note in report.notes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("record", SOME_RECORDS, ids=record_name)
def test_a_record_that_meets_the_targets_and_is_on_the_front_gets_three_stars(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    for puzzle, function in solved_by(record):
        goal = puzzle.goal
        result = play(puzzle, function, seconds=60)  # a busy machine must not count as a slow schedule
        met = goal.meets_time(record.timesteps) and goal.meets_memory(record.peak_memory)
        sends_little = goal.meets_traffic(record.traffic or 0)
        if met and (sends_little or goal.decides == "star"):
            counts = sends_little and (record.family == goal.family or record in goal.open_front)
            assert (result.status, result.stars) == ("passed", 3 if counts else 2)
        else:
            assert result.status == "over_target"


def test_in_the_sandbox_a_record_is_graded_as_it_is_played() -> None:
    puzzle = PUZZLES["fsdp"]
    record = next(r for r in puzzle.goal.records if "fsdp_one" in r.by)
    (verdict,) = grade_file(str(ROOT / record.by), [puzzle]).verdicts
    assert (verdict.timesteps, verdict.peak_memory, verdict.stars) == (record.timesteps, record.peak_memory, 3)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_a_reference_passes_in_its_family_and_is_beaten_by_a_record_or_is_one(puzzle: SchedulePuzzle) -> None:
    solution = reference_of(puzzle.slug)
    report = referee(played(puzzle, solution).trace, puzzle.goal)
    assert (report.error, report.status, report.family) == (None, "passed", puzzle.goal.family)
    rivals = puzzle.goal.records_to_beat(puzzle.goal.family)
    is_beaten = any(r.dominates(report.timesteps, report.peak.memory, report.traffic) for r in rivals)
    is_record = f"solutions/{puzzle.slug}.py" in {record.by for record in rivals}
    assert (report.stars, is_record) == ((2, False) if is_beaten else (3, True))


def test_no_record_beats_another_of_its_family_with_the_same_ideas_or_fewer() -> None:
    for records in (puzzle.goal.records for puzzle in PUZZLES.values()):
        for record in records:
            others = (o for o in records if o.family == record.family and {*o.ideas} <= {*record.ideas})
            assert not any(other.dominates(*record.figures) for other in others)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("record", RECORDS, ids=record_name)
def test_a_record_names_the_ideas_that_its_run_shows(record: Record) -> None:
    for puzzle, function in solved_by(record):
        shown = set(ideas_shown(played(puzzle, function).trace))
        assert shown - {*record.ideas} <= {puzzle.slug}
        assert shown >= {*record.ideas} & {*SHOWN}


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_the_third_star_asks_for_an_idea_that_the_text_tells_or_an_earlier_one(puzzle: SchedulePuzzle) -> None:
    """And somebody has it: of the puzzle's own kind there is a record with these ideas."""
    goal = puzzle.goal
    rivals = goal.records_to_beat(goal.family)
    assert rivals
    assert all({*record.ideas} <= goal.ideas for record in rivals)
    if puzzle.slug in CORE:
        later = {*CORE[CORE.index(puzzle.slug) + 1 :]}
        assert not any(later & {*record.ideas} for record in rivals)
        assert {trick for slug in CORE if slug not in later for trick in placed()[slug].tells} == goal.ideas & {*TRICKS}


def test_a_trick_is_told_where_its_call_or_its_words_are() -> None:
    assert {trick for where in placed().values() for trick in where.tells} == {*TRICKS}
    told = [slug for slug, where in placed().items() if "input_again" in where.tells]
    assert all("get_activation" in PUZZLES[slug].statement for slug in told)


def test_every_family_of_a_record_is_one_with_a_name() -> None:
    assert {record.family for record in RECORDS} <= {*FAMILIES} - {MIXED}


def test_every_file_of_records_is_in_the_catalog() -> None:
    files = {record.file_and_variant[0] for record in RECORDS}
    assert {*FILES} == {file for file in files if file.startswith("solutions/records/")}
    assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize("file", FILES)
def test_every_function_of_a_file_is_a_record_of_its_puzzle(file: str) -> None:
    solved = {
        puzzle.slug for record in RECORDS if record.file_and_variant[0] == file for puzzle, _ in solved_by(record)
    }
    assert solved == {slug for slug in PUZZLES if hasattr(module_of(file), slug)}


@pytest.mark.parametrize("file", VARIED)
def test_a_file_as_it_stands_plays_its_first_variant(file: str) -> None:
    variants, now = module_of(file).VARIANTS, vars(module_of(file))
    first = next(iter(variants.values()))
    assert first.items() <= now.items()
    assert all(constants.keys() == first.keys() for constants in variants.values())


@pytest.mark.parametrize("file", VARIED)
def test_a_comment_above_each_variant_says_what_it_trades(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    explained = re.findall(r'^    # [^#]+\.\n    "(\w+)": \{', text, re.MULTILINE)
    assert explained == [*module_of(file).VARIANTS]


@pytest.mark.parametrize("file", VARIED)
def test_every_variant_is_a_record_or_as_good_as_one(file: str) -> None:
    named = {record.file_and_variant[1] for record in RECORDS if record.file_and_variant[0] == file}
    assert "" not in named
    for variant in module_of(file).VARIANTS.keys() - named:
        module = module_of(file, variant)
        for puzzle in (PUZZLES[slug] for slug in PUZZLES if hasattr(module, slug)):
            report = referee(played(puzzle, getattr(module, puzzle.slug)).trace, puzzle.goal)
            figures = {record.figures for record in puzzle.goal.records}
            assert (report.timesteps, report.peak.memory, report.traffic) in figures


def test_classics_of_one_size_have_the_same_records() -> None:
    by_size: dict[object, tuple[Record, ...]] = {}
    for goal in (PUZZLES[slug].goal for slug in CLASSICS.slugs):
        assert by_size.setdefault(goal.size, goal.records) == goal.records
    assert len(by_size) == 5
