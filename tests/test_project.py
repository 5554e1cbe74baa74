"""The project as a whole: its address, what it exports and loads, extras, names of classes, and words of refusals."""

import ast
import json
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from types import SimpleNamespace

import pytest

import lib
from docs.generate import address
from lib import errors
from lib.errors import RuleError, Sentence, install_command
from lib.ledger.updates import SAYS
from puzzles import version as used
from tests.support.commands import ROOT

# --- pyproject.toml alone holds the public address; everything that shows it is made from it ---


SHOWN = ("pyproject.toml", *(path for path, _ in address.BLOCKS))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that show the address, without one."""
    for name in SHOWN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    address.set_address("", tmp_path)
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in SHOWN}


def test_an_address_is_set_changed_and_removed(copy: Path) -> None:
    before = texts(copy)
    assert not any("github.com/" in text.replace("github.com/srush", "").replace("github.com/chalk", "")
                   for text in before.values())  # fmt: skip
    address.set_address("acme", copy)
    shown = texts(copy)
    assert address.urls(copy)["Play"] == "https://acme.github.io/training-puzzles/"
    assert "**[Play in your browser](https://acme.github.io/training-puzzles/)**" in shown["README.md"]
    books = [path.stem for path in sorted((ROOT / "notebooks").glob("*.py"))]
    badges = re.findall(r"/github/acme/training-puzzles/blob/play/(\w+)\.ipynb", shown["docs/notebooks.md"])
    assert badges == books
    assert shown["CITATION.cff"].endswith("repository-code: https://github.com/acme/training-puzzles\n")
    address.set_address("other", copy)
    address.set_address("acme", copy)
    assert texts(copy) == shown
    address.set_address("", copy)
    assert texts(copy) == before


def test_the_files_are_what_the_address_makes(copy: Path) -> None:
    source = address.urls().get("Source", "")
    address.set_address(source.removeprefix("https://github.com/").partition("/")[0], copy)
    assert texts(copy) == texts(ROOT), "out of date: make address"


@pytest.mark.parametrize("org", ["a b", "-a", "a--b", "x" * 40, "a/b", 'a"'])
def test_what_github_does_not_allow_is_refused(org: str, copy: Path) -> None:
    before = texts(copy)
    with pytest.raises(ValueError, match="a name on GitHub"):
        address.set_address(org, copy)
    assert texts(copy) == before


def test_the_game_reads_the_address_from_the_clone_and_from_the_installed_package(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used._addresses.cache_clear()
    address.set_address("acme", copy)
    monkeypatch.setattr("lib.errors.ROOT", copy)
    assert (used.source(), used.site()) == (address.urls(copy)["Source"], address.urls(copy)["Play"])
    assert used.requirement() == f"git+https://github.com/acme/training-puzzles@v{used.VERSION}"
    used._addresses.cache_clear()
    monkeypatch.setattr("lib.errors.ROOT", copy / "nothing")
    entries = ["Source, https://example.org/g", "Play, https://example.org/p/"]
    monkeypatch.setattr(
        "importlib.metadata.metadata", lambda name: type("", (), {"get_all": lambda self, key: entries})()
    )
    assert (used.source(), used.site()) == ("https://example.org/g", "https://example.org/p/")
    used._addresses.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs the repository")
def test_no_other_file_names_an_address_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    mine = re.compile(r"github(\.com|\.io|usercontent\.com)[:/][\w.-]*/?training-puzzles|YOUR_" + "ORG", re.IGNORECASE)
    endings = (".py", ".md", ".toml", ".yml", ".js", ".html", ".sh", "")
    allowed = {*SHOWN, "docs/generate/address.py", "tests/test_project.py"}
    naming = []
    for name in listed:
        path = ROOT / name
        if name not in allowed and path.is_file() and path.suffix in endings:
            naming += [name] if mine.search(path.read_text(encoding="utf-8", errors="replace")) else []
    assert naming == []


def test_no_text_installs_a_package_name_that_is_not_ours() -> None:
    """Nobody owns the name on an index yet, so whoever takes it would be installed."""
    folders = [ROOT / name for name in ("lib", "drawing", "puzzles", "docs", "notebooks")]
    for path in (ROOT / "README.md", *(path for folder in folders for path in folder.rglob("*"))):
        if path.suffix in (".py", ".md", ".js", ".html", ".yml", ".sh", ".toml"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(install|download)\b[^\n/]*[ '\"]training-puzzles(?![\w/])", text), path


# --- What `lib` exports, and which of its modules an import loads ---


LATER = ("lib.ledger.referee", "lib.ledger.trace_json", "lib.ledger.goal", "json", "difflib", "asyncio")


def loaded_by(statement: str) -> set[str]:
    """The modules of LATER that a new interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {LATER!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(found.stdout.split())


@pytest.mark.slow
def test_a_run_loads_neither_the_referee_nor_the_notation() -> None:
    assert loaded_by("from lib import Model, run") == set()
    assert loaded_by("from lib import Size, Setting") == set()
    assert {"lib.ledger.referee", "lib.ledger.trace_json"} <= loaded_by("from lib import *")


def test_every_exported_name_is_there_and_listed() -> None:
    assert [name for name in lib.__all__ if not hasattr(lib, name)] == []
    assert set(lib.__all__) <= {*dir(lib)}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="'lib' has no attribute 'refree'"):
        lib.refree  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="refree"):
        exec("from lib import refree")


MAX_MODULES = 25
"""Modules of ours that the shortest command loads."""


def test_the_version_is_printed_without_the_game() -> None:
    code = (
        "import sys, puzzles.__main__ as entry\n"
        "sys.argv = ['puzzles', '--version']\n"
        "try: entry.main()\nfinally: print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    ours = {name for name in ended.stdout.split() if name.partition(".")[0] in ("lib", "drawing", "puzzles")}
    assert "puzzles.cli.main" in ours
    assert len(ours) <= MAX_MODULES


# --- The advice on how to install an extra fits the installation, and names an extra that exists ---


def test_in_a_clone_it_installs_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("mpi") == "pip install -e '.[mpi]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("mpi") == f"pip install -e '{ROOT}[mpi]'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "training-puzzles[mpi]"),
        ({"url": "file:///home/ann/my%20games/g-0.2.0-py3-none-any.whl", "archive_info": {}},
         "/home/ann/my games/g-0.2.0-py3-none-any.whl[mpi]"),
        ({"url": "https://example.org/g-0.2.0-py3-none-any.whl", "archive_info": {}},
         "training-puzzles[mpi] @ https://example.org/g-0.2.0-py3-none-any.whl"),
        ({"url": "https://example.org/g", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
         "training-puzzles[mpi] @ git+https://example.org/g@abc"),
    ],
)  # fmt: skip
def test_elsewhere_it_names_what_was_installed(
    origin: object, requirement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In `direct_url.json`, by PEP 610; what comes from an index has none."""
    monkeypatch.setattr(errors, "ROOT", str(tmp_path))
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert install_command("mpi") == f"pip install '{requirement}'"


def test_every_extra_that_the_code_names_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = set()
    for package in ("lib", "drawing", "puzzles"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "install_command" in text else ():
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install_command":
                    named |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    assert named
    assert named <= set(known)


# --- A class name stands for one thing, so that a file, a traceback or a page never shows two classes by one name ---


DOUBLE = {
    "Bound": "the least of a figure of any schedule; the least time and memory of a split in the planner",
    "Candidate": "a way to distribute an operator, public; a schedule that the solver tries",
    "Cell": "a microbatch in a stage, as recognition reads it from a trace; as a timetable writes it",
    "Judge": "one of the three objects of a track, in each track",
    "Message": "sent between ranks in a run; sent between cells of a timetable",
    "Pipeline": "read from and written to CSV, public; as recognition reads it from a trace",
    "Plan": "a split with its time and memory, public; the stage of plans in a worker",
    "Prices": "the least ticks of operations, for bounds; the cost of a split, for the planner",
    "References": "what files state of references: what a track has to say, and what the schedule track says",
    "Row": "values of one kind in the text on a peak; a rank's step, as recognition reads it",
    "Search": "the planner's result, public; the solver's result, public",
    "Show": "one of the three objects of a track, in each track",
    "Step": "a step of a redistribution, public; an operation in the solver's order",
    "Words": "one of the three objects of a track, in each track",
    "_Rank": "private: a rank with its actions; a rank of a planned step; a rank of a played timetable",
}
"""Names of several classes that never meet, each with what they are."""


def places_of(root: Path) -> dict[str, list[str]]:
    """By class name: the file and line of each definition."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("lib", "drawing", "puzzles"):
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return found


def mistakes(places: dict[str, list[str]], listed: dict[str, str]) -> list[str]:
    """What differs between the names that are double and those that may be."""
    double = {name: where for name, where in places.items() if len(where) > 1}
    return [
        *(f"{name} is {', '.join(where)}; rename one" for name, where in double.items() if name not in listed),
        *(f"{name} is no longer double; take it off the list" for name in listed if name not in double),
        *(f"{name} is listed without a reason" for name, reason in listed.items() if not reason),
    ]


@pytest.mark.slow
def test_no_class_name_stands_for_two_things_that_can_meet() -> None:
    assert mistakes(places_of(ROOT), DOUBLE) == []


def test_a_new_double_name_and_an_old_entry_are_found(tmp_path: Path) -> None:
    for package in ("lib", "drawing"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("class Same:\n    class Inner: pass\n")
    (tmp_path / "drawing" / "one.py").write_text("class Same: pass\n")
    found = places_of(tmp_path)
    (same,) = mistakes(found, {})
    assert same.startswith("Same is lib/one.py:1, drawing/one.py:1;")
    (inner,) = mistakes(found, {"Same": "two files", "Inner": "once"})
    assert inner.startswith("Inner is no longer")
    (unexplained,) = mistakes(found, {"Same": ""})
    assert unexplained.startswith("Same is listed without")


# --- Each chapter words its refusals in one table: every reason that it raises is there with its facts, and no
# other ---


PATHS = [path for folder in ("lib", "puzzles") for path in sorted((ROOT / folder).rglob("*.py"))]


EVERY = "**"
"""Stands for the facts of a mapping."""


def calls(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The reasons that a module gives, each with the names of its facts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SAYS":
            (reason,) = (ast.literal_eval(arg) for arg in node.args)
            yield reason, {str(keyword.arg or EVERY) for keyword in node.keywords}


def tables(tree: ast.Module) -> list[ast.Dict]:
    """The tables of sentences in a module: at most one."""
    made = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Sentences")
    return [node.args[0] for node in made if isinstance(node.args[0], ast.Dict)]


def worded(table: ast.Dict) -> dict[str, set[str]]:
    """By reason: the facts in its sentence."""
    assert len({ast.literal_eval(key) for key in table.keys if key}) == len(table.keys), "a reason is worded once"
    sentences: dict[str, str] = ast.literal_eval(table)
    return {
        reason: {name.partition(".")[0] for _, name, _, _ in Formatter().parse(sentence) if name}
        for reason, sentence in sentences.items()
    }


def chapters() -> dict[str, list[Path]]:
    """The modules that share a table: one, or all of a room whose table is its `words.py`."""
    shared = [path for path in PATHS if path.name == "words.py" and path.parent.parent.parent == ROOT]
    rooms = {str(path.parent.relative_to(ROOT)): [*path.parent.rglob("*.py")] for path in shared}
    alone = [path for path in PATHS if not any(path in paths for paths in rooms.values())]
    return rooms | {str(path.relative_to(ROOT)): [path] for path in alone}


@pytest.mark.parametrize("chapter", sorted(chapters()))
def test_every_reason_of_a_chapter_is_worded_with_its_facts(chapter: str) -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in chapters()[chapter]]
    given = [call for tree in trees for call in calls(tree)]
    (table,) = [table for tree in trees for table in tables(tree)] or [ast.Dict([], [])]
    words = worded(table)
    assert [call for call in given if EVERY not in call[1] and not words.get(call[0], {call[0]}) <= call[1]] == []
    assert {reason for reason, _ in given} == set(words)
    assert [reason for reason in words if len(reason.split()) > 4] == [], "a reason is a name, no sentence"


def test_only_sentences_are_longer_than_a_line() -> None:
    for path in PATHS:
        source = path.read_text(encoding="utf-8")
        sentences = {key.lineno for table in tables(ast.parse(source)) for key in table.keys if key}
        lines = [re.split(r"  # (?:type: ignore|noqa)", line)[0] for line in source.splitlines()]
        long = {n for n, line in enumerate(lines, 1) if len(line) > 120 and len(line.split()) > 1}
        assert long <= sentences, path


def test_a_refusal_keeps_its_facts_with_its_place_and_between_processes() -> None:
    error = RuleError(SAYS("no such tier", tier="cloud", costs="copies", known="host")).at("rank 0, t=1, fetch()", 7)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy.problem, Sentence)
        assert (copy.problem.reason, copy.problem.facts["tier"]) == ("no such tier", "cloud")
        assert (copy.place, copy.line, str(copy)) == (error.place, 7, f"{error.place}: {error.problem}")
