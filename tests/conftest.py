"""Makes every run hermetic: a home of its own, a player without progress in each test, examples that are not stored.

Sandbox servers are lent to tests; most of them end with the session.
"""

import gc
import json
import os
import site
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import settings

from puzzles.judge.progress import HOME
from puzzles.sandbox.client import protection
from puzzles.tracks import register, unregister
from tests.support import examples  # noqa: F401  # registers the profiles
from tests.support.fake_grading import without_sandbox
from tests.support.fake_track import Fakes
from tests.support.in_process import without_server
from tests.support.selection import heaviest_files_first, left_to_the_gate, mark_all_but_samples
from tests.support.shared_sandbox_server import LENDER

HOMES = pytest.StashKey[Path]()
NUMBERS = count()

HOMES_OF_PROGRAMS = """
HOME USERPROFILE XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME
HYPOTHESIS_STORAGE_DIRECTORY IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR MPLCONFIGDIR
""".split()
"""Variables by which programs find a user's files."""

NO_HOMES = "JUPYTER_CONFIG_PATH JUPYTER_PATH PYTHONSTARTUP TRAINING_PUZZLES_HOME".split()


def _move_into(home: Path) -> None:
    """Sets the variables to folders in this one. Packages that were installed for the user only are found as before."""
    os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
    for name in HOMES_OF_PROGRAMS:
        folder = home / name.lower()
        folder.mkdir(mode=0o700)
        os.environ[name] = str(folder)
    for name in NO_HOMES:
        os.environ.pop(name, None)


settings.load_profile("quick")  # unless --hypothesis-profile names the other


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ran", type=Path, metavar="FILE", help="write which tests passed; with --gate, read it")
    parser.addoption("--gate", metavar="SEED", help="run quick tests that FILE lacks, and a tenth of the slow ones")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected
    home = mkdtemp(prefix="puzzles-tests-")
    config.add_cleanup(partial(rmtree, home, ignore_errors=True))  # here, and not at the exit of a forked process
    config.stash[HOMES] = Path(home, "players")
    _move_into(Path(home))


@pytest.hookimpl(tryfirst=True)  # before pytest looks at what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_all_but_samples(items)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_select_for_the_gate(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed, file = config.getoption("--gate"), config.getoption("--ran")
    if seed is not None:
        ran = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else None
        chosen, others = left_to_the_gate(items, seed, ran and set(ran))
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--ran") and config.getoption("--gate") is None:
        passed = sorted({report.nodeid for report in terminalreporter.stats.get("passed", ())})
        config.getoption("--ran").write_text(json.dumps(passed), encoding="utf-8")


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)
def pytest_order_for_processes(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        heaviest_files_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Of two processes one reads the files from the end, so that each compiles half of them in a fresh clone."""
    report = yield
    worker = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if isinstance(collector, pytest.Dir) and int(worker[2:]) % 2:
        report.result.reverse()
    return report


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage, and looking through them again and again takes a tenth of the run."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def _no_progress(request: pytest.FixtureRequest) -> Path:
    """A folder for a player's progress, which does not exist, and a server that is lent unless the test starts its own.

    One fixture that needs no other: each costs seconds in thousands of tests.
    """
    home = request.config.stash[HOMES] / str(next(NUMBERS))
    os.environ[HOME] = str(home)
    LENDER.lends = request.node.get_closest_marker("own_server") is None
    return home


@pytest.fixture
def home_of_its_own(_no_progress: Path) -> Path:
    """The folder of a player's progress, which is empty."""
    _no_progress.mkdir(parents=True)
    return _no_progress


@pytest.fixture
def in_an_empty_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty, on a terminal as wide as the module's COLUMNS."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(getattr(request.module, "COLUMNS", 80)))
    return tmp_path


@pytest.fixture
def in_this_process(request: pytest.FixtureRequest, _no_progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions run in this process, but for tests marked `sandboxed`: the files are the tests' own."""
    if request.node.get_closest_marker("sandboxed") is None:
        without_server(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    """Where nobody says how many processes are to grade, there are none but ours, which has servers already."""
    with pytest.MonkeyPatch.context() as patch:
        LENDER.lends_to_sessions(patch)
        patch.setattr("puzzles.judge.batch.cores", lambda: 1)
        yield
    LENDER.close()


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    """The track of fakes, which is registered for this test."""
    track = Fakes()
    register(track)
    yield track
    unregister(track)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `puzzles grade` take a folder without being asked to trust it, where there is no sandbox."""
    from puzzles.cli.grade import grade  # which tests of lib never load

    if not protection().guards_files:
        (trust,) = (option for option in grade.params if option.name == "trust")
        monkeypatch.setattr(trust, "default", True)


@pytest.fixture
def stated_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command takes the verdicts that submissions state, and runs nothing."""
    without_sandbox(monkeypatch)
