"""Every command in hard surroundings: edges, closed streams, byte order marks, Ctrl-C, planted modules, no POSIX."""

import codecs
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import packages_distributions
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from docs.generate import gallery
from lib import trace_to_json
from lib.ledger.named_costs import costs_named
from lib.ledger.setting import record_to_json
from lib.pipelines import one_f_one_b
from lib.pipelines.torch_csv import write_table
from puzzles.cli.main import MODULES, main
from puzzles.teaching.writing import begin
from tests.support import course, relay
from tests.support.commands import ROOT, notebook, puzzles, solution
from tests.support.mpi import mpiexec_or_skip
from tests.support.profiles import TRACES

# --- No command ends in a traceback: numbers at the edges in every option, standard streams that are closed ---


WORKING: dict[str, str] = {
    "next": "-o next.py", "path": "",
    "compare": "basic.py basic",
    "list": "", "show": "basic", "start": "basic --force", "grade": "basic.py", "watch": "basic.py",
    "draw": "basic.py basic", "run": "basic.py basic", "hint": "basic", "status": "", "reset": "--yes",
    "notebook": "books --force", "costs": "", "share": "basic.py basic", "verify": "basic.json",
    "new": "another", "check": "week3 --only relay_layout", "gradescope": "--puzzle basic --wheel no.whl",
    "doctor": "", "solve": "--ranks 2 --microbatches 2 --effort 0 --proof-seconds 0",
    "plan": "--model llama-3-8b --gpus 8 --batch 8 --sequence 1024 --pp 1 --tp 8 --zero 0 --best 1",
    "class": "course basic.py", "layout": "model.py:step --mesh data=2",
    "export": "gpipe.py gpipe", "import": "gpipe.csv", "profile": "traces",
}  # fmt: skip
"""Arguments with which each command runs."""

FORMS = {
    "L,B,R": "{},4,1", "AXIS=N,...": "dp={}", "model.layers=40": "model.layers={}",
    "time=10s": "time={}", "data=2,model=4": "data={}", "10,10,11,9": "{},10,11,9", "MODULE,...": "{}",
}  # fmt: skip
"""Numbers within a text, by the metavar of the option."""

WORDS = (type(click.STRING), click.Path, click.Choice)
EDGES = ("nan", "1e400", "-1", "9" * 30)
MORE_EDGES = (*EDGES, "inf", "-inf", "0", "0.5", "9" * 5000, "", "²")
"""Eleven, so that every third call has another edge in each option."""

GPIPE = "0F0,0F1,,0B0,0B1\n,1F0,1F1,1B0,1B1\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has what WORKING names."""
    monkeypatch.chdir(tmp_path)
    for name in ("basic", "gpipe"):
        shutil.copy(ROOT / "solutions" / f"{name}.py", f"{name}.py")
    relay.finished_folder(Path("week3"))
    Path("basic.json").write_text("{}")
    Path("no.whl").touch()
    Path("course").mkdir()
    course.rules(Path("course"), "[points]\nbasic = 1\n")
    Path("gpipe.csv").write_text(GPIPE)
    shutil.copytree(TRACES / "ddp", "traces")


def require_an_answer(*words: str) -> None:
    done = CliRunner().invoke(main, words)
    shown = [word[:40] for word in words]
    assert done.exception is None or isinstance(done.exception, SystemExit), (shown, repr(done.exception))
    assert done.exit_code in (0, 1, 2), shown
    assert done.output or done.exit_code == 0, f"{shown} fails without a word"


def values(command: click.Command, edges: tuple[str, ...], numbers_only: bool) -> Iterator[list[str]]:
    """The command's words, with one option or argument that holds one of the edges."""
    working = [command.name or "", *WORKING[command.name or ""].split()]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    for param in command.params:
        form = FORMS.get(param.metavar or "", "{}")
        is_word = isinstance(param, click.Argument) or (isinstance(param.type, WORDS) and form == "{}")
        if getattr(param, "is_flag", False) or (numbers_only and is_word):
            continue
        for edge in edges:
            if isinstance(param, click.Argument):
                place = 1 + arguments.index(param)
                yield [*working[:place], form.format(edge), *working[place + 1 :]]
            else:
                yield [*working, param.opts[-1], form.format(edge)]


def loaded(name: str) -> click.Command:
    command = main.get_command(None, name)
    assert command is not None
    return command


def test_every_command_is_tried() -> None:
    assert set(WORKING) == set(MODULES)


def test_numbers_within_texts_are_known() -> None:
    for name in MODULES:
        command = loaded(name)
        for param in command.params:
            if re.search(r"\d|\bN\b|,|\bR\b", param.metavar or "") and not isinstance(param.type, click.IntRange):
                assert param.metavar in FORMS, f"{command.name} {param.opts}: which text holds a number?"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WORKING)
def test_numbers_at_the_edges(name: str, files: None) -> None:
    for words in values(loaded(name), EDGES, numbers_only=True):
        require_an_answer(*words)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKING)
def test_edges_in_every_option_and_argument(name: str, files: None) -> None:
    for words in islice(values(loaded(name), MORE_EDGES, numbers_only=False), 0, None, 3):
        require_an_answer(*words)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("name", WORKING)
def test_a_closed_stream(name: str, stream: str, files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as ended:
        main.main([name, *WORKING[name].split()])
    getattr(sys, stream).close()
    assert ended.value.code in (0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "code"),
    [
        (">&- 2>&- <&-", 0),
        pytest.param(">&-", 0, marks=pytest.mark.slow),
        pytest.param(">/dev/full", 2, marks=pytest.mark.slow),
    ],
)
def test_a_shell_closes_streams(closed: str, code: int, files: None) -> None:
    line = f'"$0" -m puzzles grade basic.py -o out.csv {closed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, env=environment)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert Path("out.csv").read_text().startswith("submission,"), "the file was not given a standard stream's number"


@pytest.mark.parametrize("command", ["list", "costs", "show basic"])
def test_a_full_disk_is_an_error_in_words(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main.main(command.split())
    assert ended.value.code == 2


# --- Editors on Windows begin files with a byte order mark: every command reads such a file like any other ---


CHAPTER = 'title = "Week 1"\nidea = "A course."\n'


def written(name: str, text: str, mark: bytes = b"") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(mark + text.encode())
    return name


FILES: dict[str, tuple[Callable[[], str], list[list[str]]]] = {
    "basic.py": (
        partial(solution, "basic"),
        [["grade", "FILE"], ["draw", "FILE", "basic", "--text"], ["share", "FILE", "basic"]],
    ),
    "basic.ipynb": (lambda: notebook(solution("basic")), [["grade", "FILE"]]),
    "basic.json": (
        lambda: trace_to_json(gallery.solved("basic").trace),
        [["verify", "FILE"], ["verify", "FILE", "--puzzle", "basic"]],
    ),
    "order.csv": (lambda: write_table(one_f_one_b(2, 3)), [["import", "FILE"]]),
    "costs.json": (
        lambda: json.dumps(record_to_json(costs_named("parts"))),
        [["run", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--size", "2,2,2", "--costs", "FILE", "--no-tensors"]],
    ),
    "rank0.json": (
        lambda: gzip.decompress((TRACES / "1f1b" / "rank0.json.gz").read_bytes()).decode(),
        [["profile", "FILE", "--ranks", "0"]],
    ),
    "week/chapter.toml": (lambda: CHAPTER, [["check", "week"]]),
    "week/relay.toml": (lambda: Path("week/relay.toml").read_text(encoding="utf-8"), [["check", "week"]]),
}  # fmt: skip
"""By name of a file that players and teachers hand in: its text, and the commands that read it."""

SAME_READER = {
    "run": "draw",
    "export": "draw",
    "compare": "draw",
    "watch": "grade",
    "class": "grade",
    "reset": "list",
    "gradescope": "check",
}
"""Commands that read what another one does, in the same way."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(("week/", "basic.")) else []) for name in FILES],
)
def test_it_changes_nothing(name: str, in_an_empty_folder: Path) -> None:
    if name.startswith("week/"):
        begin("relay", "schedule", Path("week"))
    make, commands = FILES[name]
    text = make()
    for command in commands:
        seen = []
        for mark in (b"", codecs.BOM_UTF8):
            file = written(name, text, mark)
            done = puzzles(*(file if word == "FILE" else word for word in command))
            seen.append((done.exit_code, re.sub(r"\d+\.\d+ (ms|s|µs)\b", "", done.output)))
        assert seen[0] == seen[1], command
        assert seen[0][0] in (0, 1), seen[0][1]


@pytest.mark.slow
def test_a_target_that_is_written_into_such_a_file_is_read(in_an_empty_folder: Path) -> None:
    begin("relay", "schedule", Path("week"))
    file = Path("week/relay.toml")
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    puzzles("check", "week", "--write")
    assert "[targets]" in file.read_text(encoding="utf-8-sig")
    assert "\ufeff" not in file.read_text(encoding="utf-8-sig")


def test_every_command_that_reads_a_file_is_here() -> None:
    commands = {command for _, calls in FILES.values() for call in calls for command in call if command in MODULES}
    reading = {
        name
        for name in main.list_commands(click.Context(main))
        for param in main.get_command(click.Context(main), name).params  # type: ignore[union-attr]
        if isinstance(param, click.Argument) and isinstance(param.type, click.Path)
    }
    assert reading - commands - {*SAME_READER} == {"notebook"}, "it only writes"


# --- Ctrl-C, as a real SIGINT to every process of a command: one sentence, exit code 130, and nothing lost ---


PATIENCE = 60.0
"""Seconds until a command that does not end is a failure."""

ASK = "puzzles.sandbox.client:SandboxClient.ask"
"""What waits for a run in the sandbox."""

PROGRAM = """
import signal, sys
from importlib import import_module

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
module, _, path = sys.argv.pop(1).partition(":")
owner = import_module(module)
*owners, name = path.split(".")
for part in owners:
    owner = getattr(owner, part)
works = getattr(owner, name)

def begin(*given, **more):
    print("begun", flush=True)
    return works(*given, **more)

setattr(owner, name, begin)
from puzzles.__main__ import main
main()
"""
"""The command `puzzles`, which says when it calls a certain function; that one then works as ever."""

LOOP = course.loop("basic")
LONG = ("--limit", "time=1000s")


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def interrupted(works: str, *words: object, calls: int = 1) -> subprocess.CompletedProcess[str]:
    """A command that got Ctrl-C during the given call of `works`."""
    if sys.platform == "win32":
        pytest.skip("needs signals")
    command = [sys.executable, "-c", PROGRAM, works, *map(str, words)]
    process = subprocess.Popen(
        command, env=environment(), text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        shown = [process.stdout.readline()]
        while shown[-1] and shown.count("begun\n") < calls:
            shown.append(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        rest, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, "".join(shown) + rest, said)


def check(ended: subprocess.CompletedProcess[str]) -> str:
    """The sentence with which a command ended."""
    assert "begun\n" in ended.stdout, ended.stderr
    (sentence,) = ended.stderr.splitlines()
    assert (ended.returncode, sentence[-1]) == (130, "."), sentence
    return sentence


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", ["grade {} --limit time=1000s", "run {} basic --time-limit 1000", "watch {}"])
def test_a_command_that_waits_for_a_run_ends(words: str, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    check(interrupted(ASK, *words.format(tmp_path / "loop.py").split()))


@pytest.mark.slow
def test_checking_a_teacher_s_puzzle_ends(tmp_path: Path) -> None:
    folder = relay.finished_folder(tmp_path / "week3")
    (solution,) = (folder / "solutions").glob("relay_schedule.py")
    solution.write_text("async def relay_schedule(model):\n    while True:\n        pass\n")
    check(interrupted(ASK, "check", folder, "--time-limit", "1000"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("works", "words"),
    [
        ("lib.pipelines.solver:solve", "solve --ranks 32 --microbatches 2000 --effort 100"),
        ("lib.planning:search", "plan --model llama-3-405b --gpus 131072 --batch 131072"),
    ],
)
def test_a_command_that_computes_ends(works: str, words: str) -> None:
    check(interrupted(works, *words.split()))


def test_a_command_that_reads_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")  # nobody writes to it
    check(interrupted("puzzles.player.profile:profile", "profile", tmp_path / "trace.json"))


def test_a_command_that_is_still_loading_ends() -> None:
    """An import raises what an interrupt raises."""
    program = (
        "import sys\nclass Finder:\n def find_spec(self, name, *_):\n"
        "  if name == 'puzzles.cli.main':\n   raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\nimport puzzles.__main__"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), text=True, capture_output=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (130, 1), done.stderr


def write_class(folder: Path) -> Path:
    """The two that end are the largest, so they are graded first; the others loop."""
    here = folder / "class"
    here.mkdir()
    for name in ("ann", "ben"):
        (here / f"{name}.py").write_text(course.solution("basic") + "# more\n" * 100)
    for name in ("cleo", "dan"):
        (here / f"{name}.py").write_text(LOOP)
    return here


@pytest.mark.slow
def test_what_is_graded_of_a_class_stays_and_is_not_graded_again(tmp_path: Path, home_of_its_own: Path) -> None:
    here = write_class(tmp_path)
    words = ("grade", here, "--trust", "--puzzle", "basic", "-j", "2", "--json", *LONG)
    sentence = check(interrupted("puzzles.judge.checkpoint:Checkpoint.add", *words, calls=2))
    assert "--resume" in sentence
    (kept,) = (home_of_its_own / "runs").iterdir()
    done = [json.loads(line)["graded"]["path"] for line in kept.read_text().split("\n") if line]
    assert set(done) <= {str(here / "ann.py"), str(here / "ben.py")}
    told = re.findall(r"\d+", sentence)
    assert 1 <= int(told[0]) <= len(done), "the first was written before the second"
    assert told[1] == "4"
    for name in ("cleo", "dan"):
        (here / f"{name}.py").write_text(course.solution("basic"))
    again = subprocess.run(
        [sys.executable, "-m", "puzzles", *map(str, words), "--resume"],
        env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    rows = json.loads(again.stdout)["files"]
    assert [row["results"][0]["status"] for row in rows] == ["passed"] * 4
    assert not kept.exists(), "nothing is left to resume"


@pytest.mark.slow
def test_what_is_graded_stays_while_reports_are_written(tmp_path: Path, home_of_its_own: Path) -> None:
    here = tmp_path / "class"
    here.mkdir()
    for name in ("ann", "ben"):
        (here / f"{name}.py").write_text(course.solution("basic"))
    book = tmp_path / "book.csv"
    os.mkfifo(book)  # nobody reads it
    course.rules(tmp_path, "submissions = 'class'\ngradebook = 'book.csv'\n")
    words = ("class", tmp_path, "--trust", "--puzzle", "basic", "-j", "2")
    assert "2 of 2" in check(interrupted("puzzles.teaching.export:write_reports", *words))
    (kept,) = (home_of_its_own / "runs").iterdir()
    assert kept.read_text().count('"graded"') == 2


# --- A file in the current folder is never imported by a command, whatever module it is called after ---


GRADE = ("grade", "class/basic.py", "--json", "--puzzle", "basic")
ALL = ("grade", "class", "--trust", "--json", "-o", "page.html", "--puzzle", "basic", "--puzzle", "FSDP")
SCRIPT = "import re\nimport sys\nfrom training_puzzles.__main__ import main\nif __name__ == '__main__':\n    main()\n"
"""What pip writes for the command `puzzles`."""

BY_SITE = {"sitecustomize", "usercustomize"}
"""Modules that Python itself looks for before it runs a program."""

SPAWN = """
import multiprocessing
of = multiprocessing.get_context
multiprocessing.get_context = lambda method: of("spawn")
"""
"""As `sitecustomize`, makes multiprocessing start processes as it does on macOS and Windows."""

RECORDED = """
import runpy, sys
module = sys.argv.pop(1)
names = set()
class Recorder:
    def find_spec(self, name, path=None, target=None):
        names.add(name.partition(".")[0])
sys.meta_path.insert(0, Recorder())
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    open("names", "w").write("\\n".join(names))
"""


class Entry(NamedTuple):
    """A way to start the command. In `path`, names stand for the clone, its `package`, and a folder with SPAWN."""

    words: tuple[str, ...]
    path: str = "{root}:{package}"
    safe: str = ""
    arguments: tuple[str, ...] = GRADE
    here: bool = False
    """True if the current folder is a clone's own."""


M = ("-m", "puzzles")
SLOW = {
    "in the clone": Entry(M, "", arguments=GRADE, here=True),
    "a class": Entry(M, arguments=ALL),
    "a class, in the clone": Entry(M, "", arguments=ALL, here=True),
    "-m training_puzzles": Entry(("-m", "training_puzzles")),
    "-m training_puzzles, empty path": Entry(("-m", "training_puzzles"), ":{root}:{package}"),
    "script": Entry(("bin/puzzles",)),
    "-P": Entry(("-P", *M)),
    "PYTHONSAFEPATH": Entry(M, safe="1"),
    "PYTHONSAFEPATH, relative path": Entry(M, "sub:.:{root}", safe="1"),
    "in the clone, relative path": Entry(("-m", "training_puzzles"), "puzzles/package", here=True),
    "spawned processes, in the clone": Entry(M, "{spawn}", arguments=ALL, here=True),
    "processes of MPI": Entry(M, arguments=("run", "class/basic.py", "basic", "--on", "mpi")),
    "a wheel is built": Entry(M, arguments=("gradescope", "--puzzle", "basic", "-o", "autograder.zip")),
    "-m puzzles.page": Entry(("-m", "puzzles.page"), arguments=("--help",)),
}
ENTRIES = {
    "-m puzzles": Entry(M),
    "script, relative path": Entry(("bin/puzzles",), "sub:{root}:{package}:."),
    **SLOW,
}


def ran(entry: Entry, folder: Path) -> subprocess.CompletedProcess[str]:
    clone = folder if entry.here else ROOT
    names = {"root": clone, "package": clone / "puzzles" / "package", "spawn": folder.parent / "spawn"}
    path = entry.path.format(**names).replace(":", os.pathsep)
    env = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": entry.safe}
    command = [sys.executable, *entry.words, *entry.arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def started_with(entry: Entry, folder: Path) -> set[str]:
    """What Python has imported before the first line of a program that is started in this way."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    (folder / "blank.py").write_text(show)
    (folder / "bin").mkdir()
    (folder / "bin" / "puzzles").write_text(f"import re\n{show}")
    is_script = entry.words[0].startswith("bin")
    words = entry.words if is_script else (*(word for word in entry.words if word == "-P"), "-m", "blank")
    found = ran(entry._replace(words=words, path=f"{entry.path}:{folder}"), folder).stdout
    (folder / "blank.py").unlink()
    (folder / "bin" / "puzzles").write_text(SCRIPT)
    return {*found.split()}


@cache
def imported(module: str, arguments: tuple[str, ...], folder: Path) -> set[str]:
    """Top-level names of all modules that the command looks for, those that are not found too."""
    assert ran(Entry(("-c", RECORDED, module), arguments=arguments), folder).returncode == 0
    found = {*(folder / "names").read_text().split()}
    assert {"__future__", "click", "typing"} <= found
    return {*found, *sys.stdlib_module_names, *packages_distributions()}


def plant(names: Iterable[str], folder: Path, log: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(
            f"with open({str(log)!r}, 'a') as log: print(__name__, file=log)\nraise ImportError\n"
        )


@pytest.fixture(scope="module")
def a_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class that a schedule and an engine puzzle are graded for."""
    folder = tmp_path_factory.mktemp("a_class")
    (folder / "class").mkdir()
    for name in ("basic", "engine/fsdp"):
        (folder / "class" / Path(f"{name}.py").name).write_bytes((ROOT / "solutions" / f"{name}.py").read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in ENTRIES])
def test_no_module_comes_from_the_current_folder(name: str, a_class: Path, tmp_path: Path) -> None:
    if "mpi" in ENTRIES[name].arguments:
        mpiexec_or_skip()
    entry, folder, log = ENTRIES[name], tmp_path / "clone", tmp_path / "log"
    if entry.here:
        for part in ("lib", "drawing", "puzzles", "solutions"):
            shutil.copytree(ROOT / part, folder / part)
    shutil.copytree(a_class / "class", folder / "class")
    (tmp_path / "spawn").mkdir()
    (tmp_path / "spawn" / "sitecustomize.py").write_text(SPAWN)
    before = {*started_with(entry, folder), *BY_SITE, entry.words[-1].partition(".")[0]}
    ours = {"lib", "drawing", "puzzles", "solutions"} if entry.here else set()
    names = imported("puzzles.page" if "puzzles.page" in entry.words else "puzzles", entry.arguments, a_class)
    for place in (folder, folder / "sub"):
        plant((name for name in names - before - ours if name.isidentifier()), place, log)
    done = ran(entry, folder)
    assert not log.exists(), sorted({*log.read_text().split()})
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in entry.arguments:
        results = [row for file in json.loads(done.stdout)["files"] for row in file["results"]]
        assert [row["status"] for row in results].count("passed") == (2 if "FSDP" in entry.arguments else 1)


# --- Playing and grading one's own file where there is no fork, fcntl, resource or SIGKILL, as on Windows ---


WITHOUT = """
import os, signal, subprocess, sys
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("fork", "setsid", "killpg", "register_at_fork"):
    delattr(os, name)
del signal.SIGKILL
sys.path.insert(0, {root!r})
"""

WITHOUT_POSIX = """
from puzzles.sandbox import client
client.ONESHOT_PROGRAM = {without!r} + client.ONESHOT_PROGRAM
client.end_tree = lambda process: (process.poll() is None and os.kill(process.pid, 9), process.wait())
from puzzles.cli.main import main
main({words!r}, prog_name="puzzles")
"""


def without_posix(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    without = WITHOUT.format(root=str(ROOT))
    code = without + WITHOUT_POSIX.format(without=without, words=list(words))
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_solution_passes(tmp_path: Path) -> None:
    (tmp_path / "solved.py").write_text((ROOT / "solutions" / "gpipe.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = without_posix(tmp_path, "grade", "solved.py", "--trust")
    assert (done.returncode, "33.3" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    for words in (("list",), ("start", "basic", "-o", "mine.py")):
        done = without_posix(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    done = without_posix(tmp_path, "grade", "mine.py")
    assert (done.returncode, "Nothing attempted yet" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(main.list_commands(None)))  # type: ignore[arg-type]  # no context is needed
def test_every_command_shows_its_help(command: str, tmp_path: Path) -> None:
    done = without_posix(tmp_path, command, "--help")
    assert (done.returncode, "Usage" in done.stdout) == (0, True), done.stderr
