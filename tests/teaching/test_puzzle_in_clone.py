"""A puzzle of the game is added in a clone as a teacher adds one to a folder: `new`, texts, `check --write`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from puzzles.custom import OwnPuzzleError
from puzzles.teaching import writing
from puzzles.tracks import SHIPPED, TRACKS
from tests.test_imports import ROOT

COPIED = ("lib", "drawing", "puzzles", "solutions", "docs", "notebooks", "tests")


def cloned(folder: Path) -> Path:
    """A copy of this clone, with what Python has compiled of it. It has its own folder: notebooks look for the game
    in the folders above them."""
    folder = folder / "clone"
    folder.mkdir()
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("node_modules"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    return folder


def puzzles(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "puzzles", *words]
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    return subprocess.run(command, cwd=folder, env={**os.environ, **home}, capture_output=True, text=True, check=False)


def ok(folder: Path, *words: str) -> str:
    done = puzzles(folder, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def add(folder: Path, slug: str, track: str, *options: str) -> list[str]:
    """Adds a puzzle by two commands, with the texts and the solution of the draft; returns its files."""
    lines = ok(folder, "new", slug, "--track", track, *options).splitlines()
    files = [line.removeprefix("Wrote ").removesuffix(".") for line in lines if line.startswith("Wrote ")]
    draft = folder / files[0]
    text = draft.read_text(encoding="utf-8").replace("TODO: ", "Done. ").replace("sources = []", 'sources = ["ZERO"]')
    draft.write_text(text, encoding="utf-8")
    assert f"{slug}: ready" in ok(folder, "check", "--only", slug, "--write")
    return files


@pytest.mark.slow
def test_a_puzzle_is_added_and_shown_and_graded(tmp_path: Path) -> None:
    folder = cloned(tmp_path)
    files = add(folder, "relay", "plan")
    assert sorted(files) == [
        "puzzles/content/plan/plan/relay.toml",
        "solutions/plan/relay.py",
        "tests/catalog/wrong/relay/across.py",
        "tests/catalog/wrong/relay/many.py",
    ]
    assert (folder / files[2]).read_text(encoding="utf-8").startswith("# relay: over_target\n")
    assert "Done. a title" in ok(folder, "show", "relay")
    ok(folder, "grade", "solutions/plan/relay.py", "--puzzle", "relay")
    again = puzzles(folder, "new", "relay", "--track", "plan")
    assert again.returncode == 2
    assert "'relay'" in again.stderr


@pytest.mark.slow
def test_the_quick_tests_pass_with_a_puzzle_in_each_track(tmp_path: Path) -> None:
    folder = cloned(tmp_path)
    for track in TRACKS:
        add(folder, f"added_{track}", track)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f", {len(track.slugs) + 1} puzzles |" in readme for track in TRACKS.values())
    views = (folder / "docs" / "map.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert [[view.count(f"[added_{track}](") for track in TRACKS] for view in views] == [[1] * len(TRACKS)] * 3
    assert "(pictures/added_schedule.svg)" in (folder / "docs" / "pictures.md").read_text(encoding="utf-8")
    assert (folder / "docs" / "pictures" / "added_schedule.svg").is_file()
    code = "import json; from puzzles.page.listing import listing; print(json.dumps(listing()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    page = json.loads(done.stdout)
    assert {f"added_{track}" for track in TRACKS} <= page["puzzles"].keys()
    ok(folder, "notebook", "books")
    books = "".join(path.read_text(encoding="utf-8") for path in (folder / "books").glob("*.ipynb"))
    assert all(slug in books for slug in ("added_schedule", "added_plan")), "the tracks that have notebooks"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not slow", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_mistakes_get_one_sentence_each_and_lose_nothing(tmp_path: Path) -> None:
    folder = cloned(tmp_path)
    refused = puzzles(folder, "new", "relay", "--track", "schedule", "--chapter", "clasics")
    assert refused.returncode == 2
    assert "'clasics'" in refused.stderr
    ok(folder, "new", "relay", "--chapter", "classics")
    file = folder / "puzzles" / "content" / "schedule" / "classics" / "relay.toml"
    draft = file.read_text(encoding="utf-8")
    shown = puzzles(folder, "show", "relay")
    assert shown.returncode == 2
    assert "check --only relay --write'" in shown.stderr
    wrong = folder / "tests" / "catalog" / "wrong" / "relay" / "alone.py"
    wrong.write_text(wrong.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    checked = puzzles(folder, "check", "--only", "relay")
    assert checked.returncode == 2
    assert "alone.py, line 1:" in checked.stderr
    file.write_text(draft.replace("size = {", "size = ["), encoding="utf-8")
    broken = puzzles(folder, "list")
    assert broken.returncode == 2
    assert broken.stderr.startswith("Error: puzzles/content/schedule/classics/relay.toml: ")
    assert "line 3" in broken.stderr
    assert len(broken.stderr.splitlines()) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", sorted(SHIPPED))
def test_a_puzzle_of_the_game_has_what_a_check_needs(slug: str) -> None:
    own = writing.puzzle_in_clone(slug)
    assert own.has_targets
    assert own.path(own.reference).is_file()
    assert all(own.path(name).is_file() for name in own.wrong)


def test_what_a_wrong_solution_must_get_is_said_in_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "relay" / "alone.py"
    file.parent.mkdir()
    file.write_text("# relay: rule\n", encoding="utf-8")
    assert writing.expected_of(file) == "rule"
    for text in ("", "# ddp: rule\n", "# relay rule\n"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(OwnPuzzleError, match=r"alone\.py, line 1: "):
            writing.expected_of(file)


def test_the_tracks_of_the_game_have_drafts() -> None:
    assert all(writing.chapter_named(track, "").is_dir() for track in TRACKS)
