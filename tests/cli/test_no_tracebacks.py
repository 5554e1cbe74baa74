"""No command ends in a traceback: numbers at the edges in every option, standard streams that are closed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from puzzles.cli.main import MODULES, main
from tests.support.course import rules
from tests.support.profiles import TRACES
from tests.support.relay import finished_folder

ROOT = Path(__file__).parents[2]

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
    finished_folder(Path("week3"))
    Path("basic.json").write_text("{}")
    Path("no.whl").touch()
    Path("course").mkdir()
    rules(Path("course"), "[points]\nbasic = 1\n")
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
