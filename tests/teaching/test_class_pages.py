"""The pages of a class: a small index, a page for each student, each text once, and nothing stale."""

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import Result

from puzzles.catalog.schedule import CLASSICS
from puzzles.cli.grade import outputs_of
from puzzles.judge.verdict import Graded, Verdict
from puzzles.screens.html import message_html, text_html
from puzzles.teaching.class_pages import INDEX, ClassPages, PageNames
from puzzles.teaching.course_file import Course
from puzzles.tracks import find, track_of
from tests.support import course
from tests.support.commands import puzzles, solution
from tests.support.course import over_target

pytestmark = pytest.mark.usefixtures("in_this_process")


class Table(HTMLParser):
    """The cells of the body of a page's first table, and its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside |= tag == "tbody"
        if self._inside and tag == "tr":
            self.rows.append([])
        if self._inside and tag == "td":
            self.rows[-1].append("")
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        self._inside &= tag != "tbody"

    def handle_data(self, data: str) -> None:
        if self._inside and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def verdict(slug: str, stars: int) -> Verdict:
    status = ("failed", "over_target", "passed", "passed")[stars]
    track = track_of(slug)
    return Verdict(slug, track.name, status, track.words.targets(find(slug)), None if stars else "deadlock", stars,
                   message="" if stars else "rank 0 waits for rank 1")  # fmt: skip


def class_pages(folder: Path, paths: list[str]) -> ClassPages:
    return ClassPages(str(folder), PageNames(folder, paths), paths)


def test_the_index_of_300_students_and_8_puzzles_is_small_and_says_who_has_what(tmp_path: Path) -> None:
    slugs = list(CLASSICS.slugs)
    paths = [f"class/student_with_a_long_name_{i:03}/solutions.py" for i in range(300)]
    graded = [
        Graded(path, tuple(verdict(slug, (i + j) % 4) for j, slug in enumerate(slugs)), unit=i)
        for i, path in enumerate(paths)
    ]
    pages = class_pages(tmp_path / "out", paths)
    assert pages.finish(graded) == ""
    index = (tmp_path / "out" / "index.html").read_text()
    assert len(index.encode()) < 300_000
    table = Table(index)
    assert [row[0] for row in table.rows] == [path.removeprefix("class/") for path in paths]
    stars = [[v.stars for v in one.verdicts] for one in graded]
    assert [[cell.count("★") for cell in row[1:9]] for row in table.rows] == stars
    assert [int(row[10]) for row in table.rows] == list(map(sum, stars))
    assert [int(row[9]) for row in table.rows] == [sum(n >= 2 for n in row) for row in stars]
    for label, wanted in (("★★★", 3), ("★★", 2), ("★ (over target)", 1), ("failed", 0)):
        (row,) = re.findall(rf"<tr><th>{re.escape(label)}((?:<td>\d*)+)", index)
        assert row.split("<td>")[1:9] == [str(sum(one[j] == wanted for one in stars)) for j in range(8)]
    script = re.search(r"<script>(.*?)</script>", index, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in index, "the one script is named by its digest; no other may run"
    texts = (tmp_path / "out" / "puzzles.html").read_text()
    assert texts.count("<h2>") == 8
    for slug in slugs:
        assert f'id="{slug}"' in texts


HOSTILE = """
def layout():
    raise ValueError("`code` <script>alert(1)</script> [x](javascript:alert(1)) ![y](http://z.example/a.png)")
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graded")
    sources = {
        "anna": solution("basic") + solution("ddp"),
        "ben": "def basic(model):\n    layout()\n" + HOSTILE,
        "cleo": over_target("basic"),
        "dan": solution("basic") + solution("ddp") + "x = (\n",
        "eve": "y = 1\n",
    }
    (folder / "class").mkdir()
    for name, source in sources.items():
        (folder / "class" / f"{name}.py").write_text(source)
    words = ["grade", "--trust", str(folder / "class"), "-o", str(folder / "out"), "-j", "1"]
    result = puzzles(*words, code=1)
    assert "index.html" in result.output
    return folder / "out"


def page(pages: Path, name: str) -> str:
    (text,) = [text for file in (pages / "students").iterdir() if f"<h1>{name}.py</h1>" in (text := file.read_text())]
    return text


@pytest.mark.slow
def test_every_link_of_the_index_and_of_the_students_leads_somewhere(pages: Path) -> None:
    index = Table((pages / "index.html").read_text())
    assert [row[0] for row in index.rows] == ["anna.py", "ben.py", "cleo.py", "dan.py", "eve.py"]
    for where in (pages / "index.html", *(pages / "students").iterdir()):
        for link in Table(where.read_text()).links:
            file, _, anchor = link.partition("#")
            target = (where.parent / file).resolve()
            assert target.is_file(), link
            assert not anchor or f'id="{anchor}"' in target.read_text(), link


def test_a_student_sees_figures_code_advice_the_peak_and_pictures(pages: Path) -> None:
    anna, cleo = page(pages, "anna"), page(pages, "cleo")
    assert anna.count("<svg") == 4, "a timeline and a front for each of two puzzles"
    assert "16.5" in anna
    assert "Best known" in anna
    assert "memory and traffic" in cleo
    assert "<details open>" in cleo, "it misses the memory target"
    assert "What to try" in cleo
    assert "peaks at t=" in cleo
    ben = page(pages, "ben")
    assert "crash" in ben
    assert re.search(r'<pre><span class="faint">line \d+</span>  raise ValueError', ben)
    assert "Nothing was attempted" in page(pages, "eve")


def test_what_a_player_writes_stays_text(pages: Path) -> None:
    ben = page(pages, "ben")
    assert "<code>code</code>" in ben
    assert "<script" not in ben
    assert "<img" not in ben
    assert "javascript:" not in re.sub(r">[^<]*<", "><", ben), "not in an attribute"
    assert "&lt;script&gt;" in ben


def test_texts_that_repeat_are_there_once(pages: Path) -> None:
    dan = page(pages, "dan")
    assert dan.count("<section") == 1, "one syntax error, whatever it breaks"
    assert dan.count("was never closed") == 1
    assert "#ddp" in dan
    assert "#basic" in dan
    practice = find("basic").in_practice.split(".")[0][:40]
    assert practice in unescape((pages / "puzzles.html").read_text())
    assert not any(practice in unescape(path.read_text()) for path in (pages / "students").iterdir())


def test_markdown_is_rendered() -> None:
    assert text_html("`a` *b*\n\n    code\n\n<b>") == (
        "<p><code>a</code> <em>b</em></p>\n<pre><code>code\n</code></pre>\n<p>&lt;b&gt;</p>\n"
    )
    assert "<td>1</td>" in text_html("| a |\n|---|\n| 1 |\n"), "tables too"
    assert message_html("`a<b` *c* [d](e)") == "<code>a&lt;b</code> *c* [d](e)"


def test_the_option_takes_a_page_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "is.html").mkdir()
    folders = ("out", "out/", "r.html/", str(tmp_path / "is.html"))
    formats = [[*outputs_of([name], Course())] for name in ("r.html", "r.HTM", *folders)]
    assert formats == [["html"]] * 2 + [["pages"]] * 4


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    pages = class_pages(tmp_path / "out" / "x", ["a.py"])
    kept = pages.add(Graded("a.py", (verdict("ddp", 0),)))
    assert kept.verdicts[0].reason == "deadlock", "the verdicts are not lost"
    assert "cannot write" in pages.finish([kept])


def test_a_page_that_breaks_costs_no_verdict(tmp_path: Path) -> None:
    pages = class_pages(tmp_path, ["a.py"])
    broken = verdict("ddp", 2)  # a pass without figures, which no grader makes
    assert pages.add(Graded("a.py", (broken,))).verdicts == (broken,)
    assert "cannot make" in pages.finish([])


# --- Pages that can be handed out: names that tell nothing, and nothing stale ---


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
