"""The notebooks: built the same each time, equal to the catalog, and they run from top to bottom."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

import lib
from docs.generate import field
from puzzles import version
from puzzles.catalog.content import Chapter
from puzzles.catalog.schedule import CHAPTERS, CLASSICS, PUZZLES
from puzzles.cli.main import main
from puzzles.player import authoring
from puzzles.player.authoring import FULL, INK, MARKER, SOURCES, books, collective_svg
from puzzles.screens.html import rendered
from puzzles.tracks import TRACKS
from puzzles.tracks.plan import PLAN_PUZZLES
from puzzles.version import VERSION
from tests.support.kernel import ROOT
from tests.support.solved import reference_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
MEGABYTE = 1_000_000
WITH_PICTURE = 200_000
"""Bytes of a solved puzzle with its picture, at most: a chapter of nine has more than a megabyte."""
SECONDS = 90
"""In which all of them run, those of players and the solved ones."""
CLASSIC_BOOK = "01_puzzles.ipynb"
JOBS_BOOK = "10_real_jobs.ipynb"
CHAPTER_OF = {CLASSIC_BOOK: CLASSICS} | {
    f"{path.stem}.ipynb": chapter for chapter in CHAPTERS[1:] for path in SOURCES.glob(f"[0-9]*_{chapter.name}.py")
}
"""By notebook: the chapter whose puzzles it has."""
both = pytest.mark.parametrize("solved", [False, True], ids=["player", "solved"])


def cells_of(text: str) -> dict[str, Any]:
    return {cell["id"]: cell for cell in json.loads(text)["cells"]}


# --- How they are made ---


@pytest.mark.slow
@pytest.mark.sampled(1)
@both
def test_they_are_the_same_bytes_each_time_and_valid_and_without_outputs(solved: bool) -> None:
    made = books(solved)
    assert {*(chapter.name for chapter in CHAPTER_OF.values())} == {chapter.name for chapter in CHAPTERS}
    assert {"00_tour.ipynb", *CHAPTER_OF} <= {book.file for book in made}
    assert made == books(solved)
    for book in made:
        notebook = nbformat.reads(book.text, as_version=4)
        nbformat.validate(notebook)
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
        assert len(cells_of(book.text)) == len(notebook.cells)
        assert not any(MARKER.search(cell.source) or "# %" in cell.source for cell in notebook.cells)


@pytest.mark.sampled(1)
@both
def test_statement_gap_target_and_solution_are_those_of_the_catalog(solved: bool) -> None:
    of_books = {book.file: cells_of(book.text) for book in books(solved)}
    cells = {name: cell for of_book in of_books.values() for name, cell in of_book.items()}
    puzzles = {file: chapter.slugs for file, chapter in CHAPTER_OF.items()} | {JOBS_BOOK: PLAN_PUZZLES}
    for file, slugs in puzzles.items():
        plays = [name for name in of_books[file] if name.endswith("-play")]
        assert plays == [f"{slug}-play" for slug in slugs]
    for slug, puzzle in PUZZLES.items():
        task, code = "".join(cells[f"{slug}-task"]["source"]), "".join(cells[f"{slug}-code"]["source"])
        assert puzzle.statement.strip() in task
        assert f"| {puzzle.goal.time_text} {puzzle.goal.costs.time_unit} | {puzzle.goal.memory_text} elements" in task
        assert ("data:image/svg+xml" in task) == (puzzle.sketch is not None)
        reference = (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8")
        assert code.strip() in (reference if solved else puzzle.starter)
        assert f"def {slug}(model: Model)" in code
        hints, background = "".join(cells[f"{slug}-hints"]["source"]), "".join(cells[f"{slug}-background"]["source"])
        assert all(hint in hints for hint in puzzle.hints)
        assert puzzle.in_practice.strip() in background
        assert all(source.title in background for source in puzzle.sources)


@pytest.mark.slow
def test_the_player_version_gives_no_solution_away() -> None:
    for empty, full in zip(books(), books(solved=True), strict=True):
        player, solved = cells_of(empty.text), cells_of(full.text)
        slugs = CHAPTER_OF[empty.file].slugs if empty.file in CHAPTER_OF else ()
        slugs = [*slugs, *(PLAN_PUZZLES if empty.file == JOBS_BOOK else ())]
        assert list(player) == list(solved)
        assert {name for name in player if player[name] != solved[name]} == {f"{slug}-code" for slug in slugs}


def test_the_sources_are_in_percent_format_and_shadow_no_package() -> None:
    for path in SOURCES.glob("*.py"):
        assert "format_name: percent" in path.read_text(encoding="utf-8")
        assert find_spec(path.stem) is None
    assert not list(SOURCES.glob("*.ipynb")) or "/notebooks/*.ipynb" in (ROOT / ".gitignore").read_text()


def set_up(place: Path, monkeypatch: pytest.MonkeyPatch, installed: bool = False) -> list[tuple[str, str]]:
    """Arguments that the first cell, run in a folder, gives to pip."""
    asked: list[tuple[str, str]] = []
    shell = SimpleNamespace(run_line_magic=lambda name, line: asked.append((name, line)))
    code = authoring.setup()
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "a spec" if installed else None)
    monkeypatch.setitem(sys.modules, "training_puzzles", ModuleType("training_puzzles"))
    cell = compile(code, "setup", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(cell, {"get_ipython": lambda: shell}))
    return asked


def test_the_setup_does_nothing_where_the_puzzles_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "clone" / "notebooks").mkdir(parents=True)
    (tmp_path / "clone" / "puzzles" / "catalog").mkdir(parents=True)
    assert set_up(folder, monkeypatch) == []
    assert set_up(tmp_path, monkeypatch, installed=True) == []


def test_the_setup_installs_the_wheel_next_to_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / f"training_puzzles-{VERSION}-py3-none-any.whl"
    wheel.touch()
    (tmp_path / "training_puzzles-0.0.1-py3-none-any.whl").touch()
    assert set_up(tmp_path, monkeypatch) == [("pip", f"install --quiet '{wheel}'")]


def test_in_jupyterlite_the_setup_installs_the_wheel_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / f"training_puzzles-{VERSION}-py3-none-any.whl"
    wheel.touch()
    installed: list[str] = []

    async def install(name: str) -> None:
        installed.append(name)

    piplite = ModuleType("piplite")
    piplite.install = install  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "piplite", piplite)
    monkeypatch.setattr("sys.platform", "emscripten")
    assert set_up(tmp_path, monkeypatch) == []
    assert installed == [f"emfs:{wheel}"]


def test_the_setup_installs_the_tested_version_once_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_addresses", lambda: {"Source": "https://github.com/acme/x"})
    assert set_up(tmp_path, monkeypatch) == [("pip", f"install --quiet git+https://github.com/acme/x@v{VERSION}")]


def test_the_setup_installs_nothing_from_a_name_that_anybody_could_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    with pytest.raises(ImportError, match=f"put training_puzzles-{VERSION}-py3-none-any.whl"):
        set_up(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "filled_dots", "strips"),
    [("allreduce", 4 + 16, 8), ("allgather", 0, 4 + 16), ("scatterreduce", 4 + 16, 8)],
)
def test_a_collective_is_drawn_as_the_runtime_computes_it(name: str, filled_dots: int, strips: int) -> None:
    """Dots: one batch each before, four each after. Strips: shards, or one for a whole."""
    drawn = collective_svg(name)
    assert drawn.count(f'fill="{INK}"/>') == filled_dots
    assert drawn.count(f'fill="{FULL}"/>') == strips


@pytest.mark.sampled(9)
@pytest.mark.parametrize("slug", [slug for slug, puzzle in PUZZLES.items() if puzzle.sketch and puzzle.sketch.shares])
def test_a_sketch_shows_every_rank_and_what_the_reference_loads(slug: str) -> None:
    """As many filled boxes as there are pairs of a rank and a layer whose weight, or a shard of it, it loads."""
    puzzle = PUZZLES[slug]
    goal = puzzle.goal
    outcome = lib.run(reference_of(slug), *goal.size, setting=goal.setting)
    loads = [{op.layer for op in ops if op.name == "load_weights"} for ops in outcome.trace.ranks]
    sketch, drawn = puzzle.sketch, TRACKS["schedule"].show.sketch(puzzle, rendered)
    size = puzzle.goal.size
    assert sketch is not None
    assert [{layer for layer in range(size.layers) if sketch.part(rank, layer)} for rank in range(size.ranks)] == loads
    assert [word in drawn for word in (f"rank {size.ranks - 1}<", "rank 0<")] == [True, True]
    assert f"rank {size.ranks}<" not in drawn


# --- The command ---


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["notebook", *words])


@pytest.mark.slow
def test_the_command_writes_fresh_copies_and_never_over_work(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert run(str(folder)).exit_code == 0
    for book in books():
        assert (folder / book.file).read_text(encoding="utf-8") == book.text
    (folder / "01_puzzles.ipynb").write_text("my work")
    (folder / "00_tour.ipynb").unlink()
    refused = run(str(folder))
    assert refused.exit_code == 2
    assert all(word in refused.output for word in ("01_puzzles.ipynb", "exist already", "--force"))
    assert not (folder / "00_tour.ipynb").exists()
    assert (folder / "01_puzzles.ipynb").read_text() == "my work"
    assert run(str(folder), "--force", "--solved").exit_code == 0
    assert (folder / "01_puzzles.ipynb").read_text(encoding="utf-8") == books(solved=True)[1].text


@pytest.mark.slow
def test_the_message_names_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run(str(tmp_path / "file" / "folder"))
    assert refused.exit_code == 2
    assert "cannot write" in refused.output


@pytest.mark.slow
def test_the_grader_reads_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "my.ipynb"
    path.write_text(books(solved=True)[1].text, encoding="utf-8")
    graded = CliRunner().invoke(main, ["grade", str(path), "--json"])
    results = json.loads(graded.output)["files"][0]["results"]
    assert [(result["puzzle"], result["status"]) for result in results] == [(slug, "passed") for slug in CLASSICS.slugs]


# --- How they run ---


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["player", "solved"])
def executed(request: pytest.FixtureRequest) -> tuple[bool, list[Any]]:
    """The tour and the classics after a run from top to bottom; an exception in a cell would end it."""
    start = perf_counter()
    done = [run_through(book.text) for book in books(request.param) if book.file in ("00_tour.ipynb", CLASSIC_BOOK)]
    assert perf_counter() - start < SECONDS / 2
    return request.param, done


def run_through(text: str) -> Any:
    """A notebook after a run in a fresh kernel."""
    from nbclient import NotebookClient  # which takes long to import

    notebook = nbformat.reads(text, as_version=4)
    options = {"resources": {"metadata": {"path": str(ROOT)}}, "extra_arguments": ["--Application.log_level=50"]}
    NotebookClient(notebook, timeout=45, kernel_name="python3", **options).execute()
    return notebook


def outputs(notebook: Any, cell: str) -> list[Any]:
    return next(c.outputs for c in notebook.cells if c.id == cell)


@pytest.mark.slow
def test_every_puzzle_is_passed_or_not_attempted(executed: tuple[bool, list[Any]]) -> None:
    solved, (_, book) = executed
    require_played(book, CLASSICS, solved)


@pytest.mark.slow
def test_the_second_notebook_plays_every_step_of_the_field() -> None:
    """With the reader's prediction next to the figure, once one is given."""
    text = next(book.text for book in books() if book.file == "02_field.ipynb")
    book = run_through(text.replace("measure(ddp, time=..., sent=...)", "measure(ddp, time=T / N, sent=W)"))
    shown = [out for cell in book.cells for out in cell.get("outputs", ())]
    printed = "".join(out.text for out in shown if out.get("name") == "stdout")
    for label, report in ((label, report) for step in range(10) for label, report in field.measured(step).items()):
        if label.replace("`", "").removesuffix(", 8 devices") in book_runs(text):
            assert f"{report.makespan:,.0f}" in printed, label
            assert f"{report.peak.memory:,}" in printed, label
    assert "predicted 4,126: -19.4%" in printed
    assert "predicted 134,217,728: -33.3%" in printed
    pages = [out.data["text/html"] for out in shown if "text/html" in out.get("data", {})]
    assert len(pages) == 12
    assert 'data-status="failed"' in pages[-1]
    assert not [out for out in shown if out.get("name") == "stderr"]
    assert len(nbformat.writes(book).encode()) < MEGABYTE


def book_runs(text: str) -> set[str]:
    """The reference solutions that a notebook measures."""
    return set(re.findall(r"from solutions\.(\w+) import", text))


@pytest.mark.slow
@both
@pytest.mark.parametrize("file", [file for file, chapter in CHAPTER_OF.items() if chapter is not CLASSICS])
def test_a_later_chapter_runs_too(file: str, solved: bool) -> None:
    notebook = run_through(next(book.text for book in books(solved) if book.file == file))
    require_played(notebook, CHAPTER_OF[file], solved)
    assert not [out for cell in notebook.cells for out in cell.get("outputs", ()) if out.get("name") == "stderr"]
    assert len(nbformat.writes(notebook).encode()) < max(MEGABYTE, WITH_PICTURE * len(CHAPTER_OF[file].slugs))


def require_played(book: Any, chapter: Chapter, solved: bool) -> None:
    expected = "Solved!" if solved else "Not attempted"
    for slug in chapter.slugs:
        (shown,) = outputs(book, f"{slug}-play")
        assert f"{slug}: {expected}" in shown.data["text/plain"]
        assert f'data-status="{"passed" if solved else "not_attempted"}"' in shown.data["text/html"]
        assert ("<svg" in shown.data["text/html"]) == solved


@pytest.mark.slow
def test_nothing_is_written_to_stderr(executed: tuple[bool, list[Any]]) -> None:
    for notebook in executed[1]:
        said = [out for cell in notebook.cells for out in cell.get("outputs", ()) if out.get("name") == "stderr"]
        assert said == []


@pytest.mark.slow
def test_each_is_under_a_megabyte(executed: tuple[bool, list[Any]]) -> None:
    for notebook in executed[1]:
        assert len(nbformat.writes(notebook).encode()) < MEGABYTE


@pytest.mark.slow
def test_the_tour_shows_what_its_words_promise(executed: tuple[bool, list[Any]]) -> None:
    tour = executed[1][0]
    printed = "".join(out.text for c in tour.cells for out in c.get("outputs", ()) if out.output_type == "stream")
    for words in (
        "3,145,728 elements before, 1,572,864 after",
        "update(layer=0): this gradient covers only batches 2, 3 of 4",
        "equal: True",
        "reduce_all      1,572,864 bytes from each rank",
        "in_two_halves   1,572,864 bytes from each rank",
        "rank 1 hears: How much is the fish?",
        "nobody can move: ranks 0, 1, 3 wait in allreduce(layer=0)",
    ):
        assert words in printed
    shown = [out.get("data", {}) for c in tour.cells for out in c.get("outputs", ())]
    assert sum(data.get("text/html", "").startswith("<svg") for data in shown) >= 10
    assert not any("image/svg+xml" in data for data in shown)
