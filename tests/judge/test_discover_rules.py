"""Each rule of finding submissions: which files count, which are refused, and that nobody is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from puzzles.judge.submission import MAX_DEPTH, SAYS, SourceFile, entries, found_in, hard_links, submissions

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")


def refused(*paths: str) -> dict[str, str]:
    """By path: why each submission is refused; empty if it is not."""
    return {file.path: file.refused for file in submissions(paths)}


def test_a_folder_has_its_python_files_and_notebooks_in_order() -> None:
    write("c/b.py", "c/a.ipynb", "c/deep/er/z.py", "c/readme.md", "c/data.csv", "c/x.pyc", "c/PY")
    assert [(file.path, file.folder) for file in submissions(["c"])] == [
        (name, "c") for name in ("c/a.ipynb", "c/b.py", "c/deep/er/z.py")
    ]


@pytest.mark.parametrize(
    "name", [".hidden.py", "_private.py", "__init__.py", ".git/a.py", "__pycache__/a.py", "venv/lib/a.py"]
)
def test_hidden_names_and_virtual_environments_are_left_out(name: str) -> None:
    write("c/ok.py", f"c/{name}", "c/venv/pyvenv.cfg")
    assert list(refused("c")) == ["c/ok.py"]


def test_a_folder_may_begin_with_one_underscore() -> None:
    write("c/_week1/a.py")
    assert list(refused("c")) == ["c/_week1/a.py"]


def test_a_file_that_is_named_counts_whatever_its_name() -> None:
    write("_odd.txt")
    assert submissions(["_odd.txt"]) == [SourceFile("_odd.txt")]
    assert submissions(["missing.py"]) == [SourceFile("missing.py")], "who reads it says that it is missing"


def test_each_file_counts_once_at_the_first_path() -> None:
    write("c/a.py", "c/b.py")
    found = found_in(["c/b.py", "c", os.path.abspath("c/a.py")])
    assert {path: [file.path for file in files] for path, files in found.items()} == {
        "c/b.py": ["c/b.py"], "c": ["c/a.py"], os.path.abspath("c/a.py"): []}  # fmt: skip


def test_links_below_a_folder_are_refused_and_listed() -> None:
    write("elsewhere/secret.py", "c/a.py")
    os.symlink("../elsewhere", "c/folder")
    os.symlink("a.py", "c/same.py")
    assert refused("c") == {"c/a.py": "", "c/folder": SAYS("link"), "c/same.py": ""}
    (same,) = (file for file in submissions(["c"]) if file.path == "c/same.py")
    with pytest.raises(OSError, match="link"):
        same.read()


def test_a_single_path_may_be_a_link_and_several_may_not() -> None:
    write("elsewhere/a.py", "c/ann/a.py")
    os.symlink("../elsewhere", "c/bo")
    assert refused("c/bo") == {"c/bo/a.py": ""}
    assert refused("c/ann", "c/bo") == {"c/ann/a.py": "", "c/bo": SAYS("link")}
    assert refused("c/ann", "c/bo/a.py") == {"c/ann/a.py": "", "c/bo/a.py": SAYS("link")}


def test_folders_below_the_deepest_level_are_refused_and_listed() -> None:
    deepest = "/".join(["c", *["d"] * MAX_DEPTH])
    write(f"{deepest}/a.py", f"{deepest}/e/b.py")
    found = refused("c")
    assert list(found) == [f"{deepest}/a.py", f"{deepest}/e"]
    assert (found[f"{deepest}/a.py"], bool(found[f"{deepest}/e"])) == ("", True)


def test_entries_of_a_folder_are_submissions_and_folders() -> None:
    write("c/b.py", "c/_b.py", "c/.b.py", "c/notes.txt", "c/.notes", "c/ann/a.py", "c/.git/a.py")
    assert entries("c") == ["ann", "b.py"]
    assert entries("none") == []


def test_a_file_under_several_names_is_told() -> None:
    write("c/a.py", "c/z.py")
    os.link("c/a.py", "c/b.py")
    assert hard_links(submissions(["c"])) == [["c/a.py", "c/b.py"]]
    assert hard_links([SourceFile("c/a.py"), SourceFile("c/z.py"), SourceFile("none")]) == [], "the other is elsewhere"
