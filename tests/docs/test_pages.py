"""Pages of the docs: their code prints what they show, what they name exists, and each is on the site."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess

import pytest

from docs.generate import truth
from puzzles.site.links import read
from puzzles.site.npm import NODE_VERSION
from tests.support.commands import puzzles
from tests.test_imports import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["browser", "engine", "extended", "layout", "solver", "torch", "truth"])
def test_the_python_of_a_page_prints_what_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    text = page(f"docs/{name}.md")
    for code in re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(code, f"{name}.md", "exec"), names)
    assert capsys.readouterr().out == "".join(re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


@pytest.mark.slow
def test_the_tables_of_the_truth_are_what_is_measured() -> None:
    assert truth.FILE.read_text(encoding="utf-8") == truth.page(), "out of date: make docs"


def test_captions_of_two_plans_have_the_bytes_that_are_drawn() -> None:
    captions = re.findall(r"([\d,]+) bytes by GSPMD's rule, ([\d,]+) solved\]\((.*?)\)", page("docs/pictures.md"))
    assert len(captions) == 3
    for *both, file in captions:
        assert re.findall(r"([\d,]+) bytes moved", page(f"docs/{file}"))[:2] == both


def test_the_commands_of_the_page_on_browsers_print_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    kinds = []
    for command in re.findall(r"^puzzles (share .*)$", page("docs/browser.md"), re.MULTILINE):
        done = puzzles(*command.split())
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("https://example.org/puzzles/#gpipe/")
        kinds.append(read(done.stdout.strip())[1])
    assert kinds == ["code", "run"]
    assert f"{NODE_VERSION} or newer" in page("docs/browser.md")


# --- What pages name ---


@pytest.mark.parametrize(("name", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 20)])
def test_every_path_exists(name: str, least: int) -> None:
    paths = re.findall(r"`((?:lib|drawing|puzzles|solutions|notebooks|tests|docs)/[\w./]*)`", page(name))
    assert len(paths) > least
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/browser.md", "docs/notebooks.md"])
def test_the_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page(name), re.MULTILINE))
    assert named
    assert named <= targets


SECURITY = re.findall(
    r"^\| (.+) \| (\w+) \| (\w+) \| (\w+) \| `(\w+)::(\w+)` \|$", page("docs/security.md"), re.MULTILINE
)


def test_every_line_on_security_is_shown_by_a_test_that_exists() -> None:
    assert len(SECURITY) == page("docs/security.md").count("::test_") == 30
    for what, *_, module, name in SECURITY:
        tree = ast.parse(page(f"tests/puzzles/{module}.py"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, what


def test_marks_on_security_are_explained() -> None:
    notes = re.findall(r"^(\d)\. ", page("docs/security.md"), re.MULTILINE)
    assert {mark for row in SECURITY for mark in row[1:4]} == {"yes", "no", *notes}


def test_every_page_is_on_the_site() -> None:
    listed = page("docs/site/mkdocs.yml")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {name for name in pages if not re.search(rf": {re.escape(name)}$", listed, re.MULTILINE)} == set()


# --- Make and pre-commit ---


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_every_target_with_its_meaning() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^make ([a-z-]+) +\w.*", listed.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert sorted(targets) == sorted(phony[1].replace("\\", " ").split())


def test_pre_commit_runs_what_make_check_runs() -> None:
    entries = re.findall(r"entry: (.*)", page(".pre-commit-config.yaml"))
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert entries == [
        line.strip().replace("$(BIN)", ".venv/bin").lstrip("@") for line in recipe[1].strip().splitlines()
    ]
