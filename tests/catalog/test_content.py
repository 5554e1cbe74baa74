"""The puzzles as data: what is compiled is what the files say, and a fault in a file is named with its line."""

import json
import re
import shutil
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from lib.pipelines.rank_work import Names
from puzzles.catalog import content as content_module
from puzzles.catalog.content import COMPILED, CONTENT, ChapterFile, compiled, content, fields_of, parsed
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.fields import Fields, OwnPuzzleError, line_of
from puzzles.catalog.path import AFTER, CORE, ON_TENSORS, PATH, known, next_on_path
from puzzles.catalog.puzzle import Paper, Puzzle, papers, papers_of_schedules
from puzzles.catalog.schedule import PUZZLES, read_puzzle
from puzzles.tracks import ALL, SHIPPED, TRACKS, before, mark, place, track_of
from puzzles.tracks.layout import LAYOUT_PUZZLES
from puzzles.tracks.plan import PLAN_PUZZLES
from tests.screens.texts import approved

# --- The puzzles as data: what is compiled is what the files say, and a fault in a file is named with its line ---


NO_CHAPTER = ChapterFile("", "", (), 0, "")
GPIPE = CONTENT / "schedule" / "classics" / "gpipe.toml"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of some of the content, with nothing compiled."""
    folder = tmp_path / "content"
    shutil.copytree(CONTENT / "schedule" / "memory", folder / "schedule" / "memory")
    monkeypatch.setattr(content_module, "CONTENT", folder)
    monkeypatch.setattr(content_module, "COMPILED", folder / "__pycache__" / COMPILED.name)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    content.cache_clear()
    yield folder
    content.cache_clear()


def test_what_is_compiled_is_what_the_files_say() -> None:
    files = json.loads(compiled())["files"]
    assert files == content()
    assert all(files[path.relative_to(CONTENT).as_posix()] == parsed(path) for path in CONTENT.rglob("*.toml"))


def test_a_file_that_has_changed_is_read_again(clone: Path) -> None:
    file, name = clone / "schedule" / "memory" / "zero1.toml", "schedule/memory/zero1.toml"
    before = content()[name]
    assert json.loads(content_module.COMPILED.read_text(encoding="utf-8"))["files"][name] == before
    file.write_text(file.read_text(encoding="utf-8").replace(before["title"], "Another"), encoding="utf-8")
    content.cache_clear()
    assert content()[name] == {**before, "title": "Another"}


def test_what_is_compiled_suffices_and_damage_to_it_does_not_matter(clone: Path) -> None:
    before = content()
    for path in clone.rglob("*.toml"):
        path.rename(path.with_suffix(".old"))
    content.cache_clear()
    assert content() == before
    for path in clone.rglob("*.old"):
        path.rename(path.with_suffix(".toml"))
    content_module.COMPILED.write_text("{", encoding="utf-8")
    content.cache_clear()
    assert content() == before


def test_puzzles_that_a_chapter_does_not_order_come_last_by_name() -> None:
    chapter = ChapterFile("", "", ("b", "a"), 0, "")
    assert chapter.in_order(["d", "a", "c", "b"], Path("chapter.toml")) == ("b", "a", "c", "d")
    with pytest.raises(OwnPuzzleError, match=r"chapter.toml.*'order' names 'b'"):
        chapter.in_order(["a"], Path("chapter.toml"))


FAULTS = {
    "a text": ('title = "GPipe schedule"', "title = 1", "'title' is a text; got 1"),
    "a number in a table": ("memory = 4_100_000", "memory = true", "'memory' is a whole number"),
    "an unknown field": ("family = ", "famly = ", "there is no field 'famly'; did you mean 'family'?"),
    "an unknown text": ('family = "a pipeline"', 'family = "a pipe"', "no family 'a pipe'; did you mean 'a pipeline'?"),
    "a row": ("timesteps = 22.5", "timesteps = -1", "'timesteps' is a number of steps; got -1"),
    "a table": ("size = { layers = 8, batches = 4, ranks = 4 }", "size = 4", "'size' is a table; got 4"),
    "a choice": ('decides = "star"', 'decides = "never"', "there is no decides 'never'; there are pass, star"),
}


def read_from(file: Path) -> None:
    fields = fields_of(file, NO_CHAPTER)
    fields.text("track")
    read_puzzle(file.stem, fields)
    fields.done()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_file_line_and_field(fault: str, tmp_path: Path) -> None:
    before, after, message = FAULTS[fault]
    text, file = GPIPE.read_text(encoding="utf-8"), tmp_path / "gpipe.toml"
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")
    line = text[: text.index(before)].count("\n") + 1
    with pytest.raises(OwnPuzzleError) as refusal:
        read_from(file)
    assert re.search(rf"gpipe\.toml[^:]*, line {line}: .*{re.escape(message)}", str(refusal.value))


LINES = """\
# a comment
title = "t"
text = '''
title = "within a text"
'''
rows = [
    { a = 1 },
    { a = 2, b = 3 },
]

[table]
title = 5

[[list]]
x = 1

[[list]]
x = 2
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("title",), 2),
        (("rows", 2, "b"), 8),
        (("table", "title"), 12),
        (("table", "missing"), 11),
        (("list", 2, "x"), 18),
        (("list", 1), 14),
        (("missing",), 0),
    ],
)
def test_the_line_of_a_field(place: tuple[str | int, ...], line: int) -> None:
    assert line_of(LINES, place) == line


def with_fields(**given: object) -> Fields:
    return Fields("own.toml", {**{k: v for k, v in parsed(GPIPE).items() if k != "track"}, **given})


def test_every_field_of_a_schedule_is_for_teachers_too() -> None:
    targets = {"time": 33, "memory": 4_100_000, "traffic": 0}
    texts = {"answer": "It is 3.", "reload_reason": "because", "reload_advice": "Load less."}
    puzzle = read_puzzle("own", with_fields(decides="star", targets=targets, **texts))
    assert (puzzle.goal.decides, puzzle.goal.traffic) == ("star", 0)
    assert {name: getattr(puzzle, name) for name in texts} == texts


def test_records_may_be_those_of_a_puzzle_of_the_same_size() -> None:
    puzzle = read_puzzle("own", with_fields(records_of="pipeline"))
    assert puzzle.goal.records == PUZZLES["pipeline"].goal.records
    for other in ("ddp", "nobody"):
        with pytest.raises(OwnPuzzleError, match=f"'{other}' is no schedule"):
            read_puzzle("own", with_fields(records_of=other))


# --- All listings: each slug leads to its puzzle, and each publication is written once and cited ---


TEXTS: list[tuple[str, Puzzle]] = [
    *PUZZLES.items(),
    *ENGINE_PUZZLES.items(),
    *LAYOUT_PUZZLES.items(),
    *PLAN_PUZZLES.items(),
]


@pytest.mark.parametrize("puzzle", dict(TEXTS).values(), ids=dict(TEXTS))
def test_the_words_are_all_there_and_hints_grow_more_explicit(puzzle: Puzzle) -> None:
    texts = (puzzle.title, puzzle.statement, puzzle.concept, puzzle.in_practice, puzzle.credit, *puzzle.hints)
    assert all(text.strip() for text in texts)
    first, *_, last = puzzle.hints
    assert len(puzzle.hints) >= 3
    assert len(first) < len(last) or puzzle.slug not in PUZZLES
    assert "`" in last
    years = {source.year for source in puzzle.sources}
    assert years
    assert all(
        str(source).startswith(f"{source.authors} ({source.year}). {source.title}.") for source in puzzle.sources
    )
    assert {int(year) for year in re.findall(r"\b(?:19\d\d|20[0-2]\d)\b", puzzle.concept + puzzle.in_practice)} <= years


def test_a_slug_that_is_not_there_is_a_key_error() -> None:
    for catalog in (PUZZLES, ENGINE_PUZZLES, LAYOUT_PUZZLES, PLAN_PUZZLES):
        assert "nobody" not in catalog
        with pytest.raises(KeyError):
            catalog["nobody"]


def test_every_publication_is_cited_and_listed_by_year() -> None:
    listed = list(papers().values())
    assert len({paper.title for paper in listed}) == len(listed)
    assert [paper.year for paper in listed] == sorted(paper.year for paper in listed)
    cited = {source.cited_for("") for _, puzzle in TEXTS for source in puzzle.sources if isinstance(source, Paper)}
    by_schedules = {papers()[name] for names in papers_of_schedules().values() for name in names}
    assert cited | by_schedules == set(listed)


def test_each_schedule_that_has_a_name_has_its_papers() -> None:
    without = {Names.WEIGHT_SHARDED}  # a step of the classic puzzles on the way to ZeRO-3, which no paper named
    assert papers_of_schedules().keys() == {value for name, value in vars(Names).items() if name.isupper()} - without


def test_authors_and_year_are_short() -> None:
    short = {name: papers()[name].short for name in ("GPIPE", "PIPEDREAM", "LOCAL_SGD", "DEEPSEEK_V3")}
    assert [short["GPIPE"], short["PIPEDREAM"]] == ["Huang et al. 2019", "Narayanan et al. 2019"]
    assert [short["LOCAL_SGD"], short["DEEPSEEK_V3"]] == ["Stich 2019", "DeepSeek-AI 2024"]
    assert papers()["BREADTH_FIRST_PIPELINE"].short == "Lamy-Poirier 2022"


# --- The core path: prerequisites form no circle and come first, and what is solved anywhere counts ---


def test_the_path_has_ten_steps_of_puzzles_that_exist_each_once() -> None:
    assert len(PATH) == 10
    assert len(set(CORE)) == len(CORE)
    assert SHIPPED.issuperset({*CORE, *AFTER, *ON_TENSORS, *ON_TENSORS.values(), *sum(AFTER.values(), ())})
    assert {ALL[slug].name for slug in CORE} == set(TRACKS), "it crosses all tracks"


def test_prerequisites_form_no_circle_and_come_first() -> None:
    list(TopologicalSorter(AFTER).static_order())
    for number, slug in enumerate(CORE):
        assert set(CORE[:number]).issuperset(known(AFTER.get(slug, ()))), f"{slug} comes too early"


@pytest.mark.parametrize("slug", CORE)
def test_a_core_puzzle_speaks_of_earlier_puzzles_only(slug: str) -> None:
    puzzle, earlier = track_of(slug).puzzle(slug), known(CORE[: CORE.index(slug)])
    words = " ".join([puzzle.statement, puzzle.starter, *puzzle.hints])
    assert {*re.findall(r"`(\w+)`", words)} & {*ALL} <= {slug, *earlier}


def test_every_core_puzzle_but_the_first_builds_on_another() -> None:
    assert [slug for slug in CORE if not AFTER.get(slug)] == ["basic"]


def test_a_class_does_what_a_schedule_plans() -> None:
    assert all(ALL[schedule].name == "schedule" for schedule in ON_TENSORS)
    assert all(ALL[tensors].name == "engine" for tensors in ON_TENSORS.values())


def test_the_path_is_walked_in_order() -> None:
    solved: list[str] = []
    while (slug := next_on_path(solved, solved[-1] if solved else "")) is not None:
        solved.append(slug)
    assert tuple(solved) == CORE


PLACED = [
    ((), "", "basic"),
    (("fsdp",), "fsdp", "checkpoint"),  # FSDP builds on DataParallel, which is not known
    (("fsdp", "DataParallel"), "fsdp", "FSDP"),
    (("three_d",), "three_d", "RingAllReduce"),
    (CORE, "llama_70b_64", None),
    (("basic",), "gpipe", "gpipe"),  # tried and not solved
    (("interleaved",), "interleaved", "DataParallel"),
]


@pytest.mark.parametrize(("solved", "after", "following"), PLACED)
def test_what_comes_before_a_solved_puzzle_is_known(solved: tuple[str, ...], after: str, following: str | None) -> None:
    assert next_on_path(solved, after) == following


def test_the_words_on_a_place() -> None:
    assert place("fsdp") == f"core 7 of {len(CORE)}; after: zero1; the same on real tensors: FSDP"
    assert place("FSDP") == f"core 8 of {len(CORE)}; after: fsdp, DataParallel; the same as a schedule: fsdp"
    assert place("wsdp") == "optional; after: ddp"
    assert (mark("a teacher's"), place("a teacher's")) == ("", "")
    approved("path", "the words on a place, 3", before(["basic", "FSDP", "a teacher's"]))
