"""Pages that can be handed out: names that tell nothing, nothing stale, comments, aliases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from puzzles.commands.main import main
from puzzles.course.comments import read_comments
from puzzles.course.roster import CourseError
from puzzles.reports.class_pages import INDEX, PageNames

LONG = "Long " * 32 + "Name"


def grade(folder: Path, *words: object) -> Result:
    command = ["grade", folder / "class", "--trust", "--puzzle", "basic", "-o", folder / "out/", "-j", "1", *words]
    result = CliRunner().invoke(main, list(map(str, command)))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    return result


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


def test_a_student_s_page_does_not_lead_to_the_class_unless_asked(tmp_path: Path) -> None:
    a_class(tmp_path, "ann")
    grade(tmp_path)
    theirs = [*(tmp_path / "out" / "students").iterdir(), tmp_path / "out" / "puzzles.html"]
    assert not any("index.html" in page.read_text() for page in theirs)
    grade(tmp_path, "--link-class")
    assert all("index.html" in page.read_text() for page in theirs)


@pytest.mark.slow
def test_nobody_is_named_where_nobody_is_to_be(tmp_path: Path) -> None:
    a_class(tmp_path, "ann", "ben")
    (tmp_path / "class" / "cleo").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "class" / "cleo" / name).write_text("def basic(model):\n    return model\n")
    (tmp_path / "roster.csv").write_text("name,id\nAnn Lee,ann\nBen Ito,ben\nCleo Roe,cleo\nDan Fox,dan\n")
    files = [word for name in ("t.csv", "j.xml") for word in ("-o", tmp_path / name)]
    book = ("--gradebook", tmp_path / "book.csv", "--roster", tmp_path / "roster.csv")
    shown = grade(tmp_path, "--anonymous", *files, *book).stdout.replace(str(tmp_path), "")
    reports = [tmp_path / "t.csv", tmp_path / "j.xml", *(tmp_path / "out").rglob("*.html")]
    for text in (shown, *(file.read_text() for file in reports)):
        assert not re.search(r"\bann\b|\bben\b|cleo|dan|Lee|Ito|Roe|Fox", text), text
    assert len(re.findall(r"Student [0-9a-f]{6}<", (tmp_path / "out" / "index.html").read_text())) == 4
    assert {"Ann Lee", "Dan Fox"} <= set(re.findall(r"^[^,]+", (tmp_path / "book.csv").read_text(), re.MULTILINE))
    command = ["grade", str(tmp_path / "class"), "--trust", "--anonymous", "--json", "--roster", str(book[3])]
    told = json.loads(CliRunner().invoke(main, [*command, "--puzzle", "basic"]).stdout)
    assert all("students" not in row and row["path"].startswith("Student ") for row in told["files"])


COMMENTS = "id,puzzle,comment\nann,,Well *done* <b>\nann,basic,Read the hint.\nnobody,,Where?\n"


@pytest.mark.slow
def test_comments_appear_on_the_page_and_survive_a_regrade(tmp_path: Path) -> None:
    a_class(tmp_path, "ann", "ben")
    (tmp_path / "comments.csv").write_text(COMMENTS)
    for _ in range(2):
        said = grade(tmp_path, "--comments", tmp_path / "comments.csv")
        page = (tmp_path / "out" / "students" / pages_by_name(tmp_path)["ann.py"]).read_text()
        assert "<p>Well <em>done</em> &lt;b&gt;</p>" in page
        assert "Read the hint." in page
        assert "Comment: " in page, "with the puzzle's heading"
        assert "Read the hint." not in (tmp_path / "out" / "students" / pages_by_name(tmp_path)["ben.py"]).read_text()
        assert "Warning: the comment on 'nobody' matches no student here" in said.stderr
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "ben.md").write_text("Come *and* see me.")
    grade(tmp_path, "--comments", tmp_path / "c")
    page = (tmp_path / "out" / "students" / pages_by_name(tmp_path)["ben.py"]).read_text()
    assert "Come <em>and</em> see me." in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,comment\n,hello\n", "line 2: it does not say whom the comment is for"),
        ("id,puzzle,comment\nann,fspd,hello\n", "line 2: there is no puzzle 'fspd'"),
        ("comment\nhello\n", "no column says who a row is about"),
    ],
)
def test_comments_that_cannot_be_used_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "comments.csv").write_text(text)
    with pytest.raises(CourseError) as refused:
        read_comments(tmp_path / "comments.csv")
    assert said in str(refused.value)
    a_class(tmp_path, "ann")
    result = grade(tmp_path, "--comments", tmp_path / "comments.csv")
    assert result.exit_code == 2
    assert said.split("'")[0] in " ".join(result.stderr.split())


@pytest.mark.slow
def test_the_index_survives_long_names(tmp_path: Path) -> None:
    a_class(tmp_path, "u1", "u2")
    (tmp_path / "roster.csv").write_text(f"name,id\n{LONG},u1\nBen,u2\n")
    grade(tmp_path, "--roster", tmp_path / "roster.csv")
    index = (tmp_path / "out" / "index.html").read_text()
    assert f'title="{LONG}">{LONG}</a>' in index, "the full name on hover"
    assert index.count("title=") == 1
    assert "text-overflow: ellipsis" in index
