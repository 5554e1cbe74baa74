"""The installed game, as wheel and editable, in environments of their own: one name in site-packages, one identity of
every module, and neither a foreign `lib` nor a player's own in the way."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from lib import PuzzleError
from lib.engine.launcher import mpiexec
from puzzles.version import VERSION
from tests.hostile.schedules import SOLVED
from tests.support import environments, fresh_jupyter
from tests.support.environments import ROOT, Environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not environments.can_build(), reason="needs pip and hatchling (pip install '.[test]')"),
]

FOREIGN = "raise RuntimeError('this is not the lib that you look for')\n"
"""A `lib.py`, or any other of our names, that does not belong to us."""

NAMES = ("lib", "drawing", "puzzles", "solutions", "notebooks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    what = (wheel,) if request.param == "wheel" else ("--editable", ROOT)
    return environments.environment(tmp_path_factory.mktemp(request.param) / "venv", *what)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A player's folder: a solution, and modules of their own that are called like ours."""
    made = tmp_path / "player"
    made.mkdir()
    (made / "mine.py").write_text(SOLVED, encoding="utf-8")
    for name in ("lib", "drawing"):
        (made / f"{name}.py").write_text(FOREIGN, encoding="utf-8")
    return made


def grade(environment: Environment, *words: str | Path, cwd: Path) -> list[dict[str, object]]:
    """The verdicts on what is attempted in all files."""
    done = environment.run("puzzles", "grade", "--json", *words, cwd=cwd, PUZZLES_HOME=str(cwd))
    assert done.stdout, done.stderr
    files = json.loads(done.stdout)["files"]
    return [result for file in files for result in file["results"] if result["status"] != "not_attempted"]


def passed(results: list[dict[str, object]]) -> list[object]:
    assert {result["status"] for result in results} == {"passed"}, results
    return [result["puzzle"] for result in results]


# --- Names ---


def test_the_wheel_holds_one_name_and_every_file_of_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"training_puzzles", f"training_puzzles-{VERSION}.dist-info"}
    assert len(names) == len(set(names))
    inside = {name.partition("/")[2] for name in names}
    ours = {
        path.relative_to(ROOT).as_posix()
        for name in NAMES
        for path in (ROOT / name).rglob("*.*")
        if path.suffix in (".py", ".typed", ".html", ".css", ".js") and ROOT / "puzzles" / "package" not in path.parents
    }
    assert ours - inside == set()
    assert {"__init__.py", "__main__.py", "py.typed"} <= inside


def test_site_packages_gets_one_name_of_ours(installed: Environment) -> None:
    for name in NAMES:
        assert not list(installed.packages.glob(f"{name}*"))
    with_name = {path.name for path in installed.packages.iterdir() if "training_puzzles" in path.name}
    dist_info = f"training_puzzles-{VERSION}.dist-info"
    assert with_name in ({"training_puzzles", dist_info}, {"_training_puzzles.pth", dist_info})


def test_the_version_is_the_same_everywhere(installed: Environment, tmp_path: Path) -> None:
    code = "from importlib.metadata import version; import training_puzzles as game; "
    code += "print(game.__version__, version('training-puzzles'))"
    assert installed.ok("python", "-c", code, cwd=tmp_path).split() == [VERSION, VERSION]


def test_modules_have_one_identity(installed: Environment, folder: Path) -> None:
    code = """
import training_puzzles, sys
from lib import Model
import lib, lib.layout, drawing, puzzles, solutions.engine.fsdp
spec = lib.__spec__
from training_puzzles.lib import Model as Same
import training_puzzles.lib.layout.layouts
from training_puzzles.solutions.engine.fsdp import FSDP
assert Same is Model and training_puzzles.lib is lib and training_puzzles.lib.layout is lib.layout
assert training_puzzles.drawing is drawing and training_puzzles.puzzles.play is puzzles.play
assert FSDP is solutions.engine.fsdp.FSDP
assert lib.__spec__ is spec and lib.__name__ == spec.name == "lib"
files = {}
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None):
        assert files.setdefault(module.__file__, module) is module, name
"""
    installed.ok("python", "-c", code, cwd=folder)


def test_no_module_of_ours_is_made_up(installed: Environment, tmp_path: Path) -> None:
    refused = installed.run("python", "-c", "import training_puzzles.lib.nothing", cwd=tmp_path)
    assert "'lib.nothing'" in refused.stderr
    refused = installed.run("python", "-c", "from training_puzzles import x", cwd=tmp_path)
    assert "has no attribute" in refused.stderr or "cannot import name 'x'" in refused.stderr


def test_plain_names_work_in_an_editable_install_but_are_free_in_a_wheel(
    installed: Environment, tmp_path: Path
) -> None:
    plain = installed.run("python", "-c", "from lib import Model", cwd=tmp_path)
    is_wheel = (installed.packages / "training_puzzles").exists()
    assert plain.returncode == is_wheel
    assert not is_wheel or "No module named 'lib'" in plain.stderr


# --- Foreign modules ---


@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_a_foreign_lib_that_is_installed_is_not_in_the_way(way: str, wheel: Path, tmp_path: Path, folder: Path) -> None:
    what = (wheel,) if way == "wheel" else ("--editable", ROOT)
    environment = environments.environment(tmp_path / "venv", *what)
    (environment.packages / "lib").mkdir()
    (environment.packages / "lib" / "__init__.py").write_text(FOREIGN)
    for name in ("drawing", "puzzles", "solutions"):
        (environment.packages / f"{name}.py").write_text(FOREIGN)
    _play_all_ways(environment, folder)


def _play_all_ways(environment: Environment, folder: Path) -> None:
    assert passed(grade(environment, "mine.py", cwd=folder)) == ["basic"]
    environment.ok("python", "-m", "training_puzzles", "grade", "mine.py", cwd=folder, PUZZLES_HOME=str(folder))
    (folder / "script.py").write_text(f"import training_puzzles\n{SOLVED}\n{SCRIPT}")
    assert "Solved!" in environment.ok("python", "script.py", cwd=folder, PUZZLES_HOME=str(folder))


SCRIPT = """
from puzzles import play

if __name__ == "__main__":
    print(play("basic", basic))
"""


def test_a_players_own_lib_is_not_in_the_way(installed: Environment, folder: Path) -> None:
    _play_all_ways(installed, folder)


def test_the_clone_itself_ignores_a_players_own_lib(tmp_path: Path, folder: Path) -> None:
    bare = environments.environment(tmp_path / "venv")
    words = ("python", "-m", "puzzles", "grade", "mine.py")
    bare.ok(*words, cwd=folder, PYTHONPATH=str(ROOT), PUZZLES_HOME=str(folder))
    bare.ok("python", "-m", "puzzles", "list", cwd=ROOT, PUZZLES_HOME=str(folder))


@pytest.mark.parametrize("name", ["lib", "drawing", "puzzles"])
def test_a_foreign_module_imported_first_is_refused_with_what_to_do(
    installed: Environment, tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text("")
    refused = installed.run("python", "-c", f"import {name}\nimport training_puzzles", cwd=tmp_path)
    last = refused.stderr.strip().splitlines()[-1]
    assert last.split(": ")[0] in ("ImportError", "training_puzzles.OtherModuleError")
    assert all(fact in last for fact in (f"'{name}'", f"({tmp_path}/{name}.py)", "'import training_puzzles' before"))


# --- Processes of other kinds ---


def test_processes_that_are_spawned_find_our_modules(installed: Environment, folder: Path) -> None:
    (folder / "pool.py").write_text(
        "import multiprocessing, training_puzzles\nfrom lib import Size\n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(Size, (1, 2, 3)))\n"
    )
    assert "ranks=3" in installed.ok("python", "pool.py", cwd=folder)


def test_processes_of_mpi_find_our_modules(installed: Environment, folder: Path) -> None:
    pytest.importorskip("mpi4py", reason="needs the extra mpi")
    try:
        command = mpiexec()
    except PuzzleError as why:
        pytest.skip(str(why))
    beside = Path(command[0]).parent
    found = {
        "PATH": os.pathsep.join([str(beside), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(beside.parent / "lib"),
    }
    installed.ok("puzzles", "run", "mine.py", "basic", "--small", "--on", "mpi", cwd=folder, **found)


# --- The sandbox ---


def test_a_solution_may_import_the_installed_name(installed: Environment, folder: Path) -> None:
    (folder / "mine.py").write_text(
        f"import training_puzzles\nfrom training_puzzles.lib import Model as Same\n{SOLVED}"
    )
    assert passed(grade(installed, "mine.py", cwd=folder)) == ["basic"]


@pytest.mark.parametrize(
    "where", ["solutions/basic.py", "puzzles/content/engine/data/trials.py", "notebooks/00_tour.py"]
)
def test_answers_are_hidden_from_solutions(installed: Environment, folder: Path, where: str) -> None:
    root = "os.path.dirname(os.path.dirname(lib.__file__))"
    (folder / "mine.py").write_text(f"import lib, os\nopen(os.path.join({root}, {where!r})).read()\n{SOLVED}")
    (verdict,) = grade(installed, "mine.py", cwd=folder)
    assert verdict["reason"] == "crash"
    assert "FileNotFoundError" in str(verdict["message"]) or "PermissionError" in str(verdict["message"])


@pytest.mark.parametrize("name", ["solutions.basic", "training_puzzles.solutions.basic", "puzzles.catalog.engine"])
def test_answers_cannot_be_imported_by_solutions(installed: Environment, folder: Path, name: str) -> None:
    (folder / "mine.py").write_text(f"import {name} as answers\nanswers\n{SOLVED}")
    (verdict,) = grade(installed, "mine.py", cwd=folder)
    assert "ModuleNotFoundError" in str(verdict["message"])


def test_classes_and_layouts_are_graded(installed: Environment, folder: Path) -> None:
    for name in ("engine/fsdp", "layout/ffn"):
        (folder / "mine.py").write_text((ROOT / "solutions" / f"{name}.py").read_text(encoding="utf-8"))
        assert len(passed(grade(installed, "mine.py", cwd=folder))) == 1


# --- Commands and notebooks ---


def test_every_command_works_in_an_empty_folder(installed: Environment, tmp_path: Path) -> None:
    def puzzles(*words: str) -> str:
        return installed.ok("puzzles", *words, cwd=tmp_path, PUZZLES_HOME=str(tmp_path / "home"))

    (tmp_path / "mine.py").write_text(SOLVED, encoding="utf-8")
    assert "schedule" in puzzles("list")
    puzzles("show", "fsdp", "--about")
    puzzles("hint", "FSDP")
    puzzles("start")
    puzzles("start", "layout")
    puzzles("grade", "mine.py", "-o", "report.html", "--traces", "traces")
    (trace,) = (tmp_path / "traces").rglob("*.json")
    puzzles("verify", str(trace), "--puzzle", "basic")
    for ending in ("svg", "html", "json", "txt"):
        puzzles("draw", "mine.py", "basic", "-o", f"run.{ending}")
    puzzles("run", "mine.py", "basic", "--small")
    puzzles("status")
    puzzles("doctor")
    puzzles("notebook", "books", "--solved")
    made = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"report.html", "run.svg", "run.html", "run.txt", "my_solutions.py", "00_tour.ipynb"} <= made


def test_a_notebook_runs_in_a_folder_with_a_lib_of_the_players_own(installed: Environment, folder: Path) -> None:
    installed.ok("puzzles", "notebook", ".", "--solved", cwd=folder, PUZZLES_HOME=str(folder))
    text = fresh_jupyter.executed(folder / "01_puzzles.ipynb", installed.python)
    assert text.count(": Solved!") >= 8
