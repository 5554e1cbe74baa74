"""The pages of a class: a small index with totals and links, a page for each student, each text once."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from puzzles.catalog.schedule import CLASSICS
from puzzles.cli.grade import outputs_of
from puzzles.judge.verdict import Graded, Verdict
from puzzles.screens.html import message_html, text_html
from puzzles.teaching.class_pages import ClassPages, PageNames
from puzzles.teaching.course_file import NO_COURSE
from puzzles.tracks import find, track_of
from tests.support.commands import puzzles, solution
from tests.support.course import over_target


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
    result = puzzles(*words)
    assert result.exit_code == 1, result.output
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
    assert message_html("`a<b` *c* [d](e)") == "<code>a&lt;b</code> *c* [d](e)"


def test_the_option_takes_a_page_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "is.html").mkdir()
    folders = ("out", "out/", "r.html/", str(tmp_path / "is.html"))
    formats = [[*outputs_of([name], NO_COURSE)] for name in ("r.html", "r.HTM", *folders)]
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
