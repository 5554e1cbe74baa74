"""Pages that can be handed out: names that tell nothing, and nothing stale."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from puzzles.teaching.class_pages import INDEX, PageNames
from tests.support import course
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("in_this_process")

LONG = "Long " * 32 + "Name"


def grade(folder: Path, rules: str = "") -> Result:
    course.rules(folder, f"submissions = 'class'\npages = 'out'\n{rules}")
    return puzzles("class", folder, "--trust", "--puzzle", "basic", "-j", "1")


def a_class(folder: Path, *names: str) -> Path:
    (folder / "class").mkdir()
    for name in names:
        (folder / "class" / f"{name}.py").write_text("def basic(model):\n    return model\n")
    return folder


def pages_by_name(folder: Path) -> dict[str, str]:
    texts = {file.name: file.read_text() for file in (folder / "out" / "students").iterdir()}
    return {found[1]: name for name, text in texts.items() if (found := re.search(r"<h1>(.*?)</h1>", text))}


@pytest.mark.slow
def test_the_name_of_a_page_depends_on_the_submission_alone(tmp_path: Path) -> None:
    a_class(tmp_path, "ben", "cleo")
    grade(tmp_path)
    before = pages_by_name(tmp_path)
    (tmp_path / "class" / "ann.py").write_text("x = 1\n")
    (tmp_path / "class" / "cleo.py").unlink()
    grade(tmp_path)
    after = pages_by_name(tmp_path)
    assert set(after) == {"ann.py", "ben.py"}, "the page of a student who is no more is gone"
    assert after["ben.py"] == before["ben.py"]
    assert not any("ben" in name for name in after.values())
    index = (tmp_path / "out" / "index.html").read_text()
    assert all(f"students/{name}" in index for name in after.values())
    other = PageNames(tmp_path / "elsewhere", ["ben.py"])
    assert other.page(0) != f"students/{after['ben.py']}", "the salt is another"
    assert PageNames(tmp_path / "out", ["ann.py", "ben.py"]).page(1).endswith(after["ben.py"])


def test_a_run_that_was_interrupted_leaves_nothing_stale_either(tmp_path: Path) -> None:
    a_class(tmp_path, "ann")
    grade(tmp_path)
    stale = tmp_path / "out" / "students" / "0123.html"
    stale.write_text("")
    (tmp_path / "out" / "mine.html").write_text("")
    listed = json.loads((tmp_path / "out" / INDEX).read_text())
    listed["files"] += ["students/0123.html", "../class/ann.py", "students/gone.html"]
    (tmp_path / "out" / INDEX).write_text(json.dumps(listed))
    grade(tmp_path)
    assert not stale.exists()
    assert (tmp_path / "class" / "ann.py").exists(), "outside of the folder nothing is removed"
    assert (tmp_path / "out" / "mine.html").exists(), "nor what nobody has listed"


@pytest.mark.parametrize("text", ["[]", "{", '{"salt": 7, "files": [8]}'])
def test_a_broken_index_of_pages_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    names = PageNames(tmp_path, ["a"])
    assert re.fullmatch(r"students/[0-9a-f]{20}\.html", names.page(0))
    assert names.stale == set()


def test_a_student_s_page_does_not_lead_to_the_class(tmp_path: Path) -> None:
    a_class(tmp_path, "ann")
    grade(tmp_path)
    theirs = [*(tmp_path / "out" / "students").iterdir(), tmp_path / "out" / "puzzles.html"]
    assert not any("index.html" in page.read_text() for page in theirs)


@pytest.mark.slow
def test_the_index_survives_long_names(tmp_path: Path) -> None:
    a_class(tmp_path, "u1", "u2")
    (tmp_path / "roster.csv").write_text(f"name,id\n{LONG},u1\nBen,u2\n")
    grade(tmp_path, "roster = 'roster.csv'\n")
    index = (tmp_path / "out" / "index.html").read_text()
    assert f'title="{LONG}">{LONG}</a>' in index, "the full name on hover"
    assert index.count("title=") == 1
    assert "text-overflow: ellipsis" in index
