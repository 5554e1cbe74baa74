"""Editors on Windows begin files with a byte order mark: every command reads such a file like any other."""

from __future__ import annotations

import codecs
import gzip
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import pytest

from docs.generate import gallery
from lib import trace_to_json
from lib.ledger.named_costs import costs_named
from lib.ledger.setting import record_to_json
from lib.pipelines import one_f_one_b
from lib.pipelines.torch_csv import write_table
from puzzles.cli.main import MODULES, main
from puzzles.teaching.writing import begin
from tests.support.commands import notebook, puzzles, solution
from tests.test_imports import ROOT

CHAPTER = 'title = "Week 1"\nidea = "A course."\n'


def trace() -> str:
    return trace_to_json(gallery.solved("basic").trace)


def written(name: str, text: str, mark: bytes = b"") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(mark + text.encode())
    return name


def recorded() -> str:
    return gzip.decompress((ROOT / "tests/profiles/traces/1f1b/rank0.json.gz").read_bytes()).decode()


FILES: dict[str, tuple[Callable[[], str], list[list[str]]]] = {
    "basic.py": (
        partial(solution, "basic"),
        [["grade", "FILE"], ["draw", "FILE", "basic", "--text"], ["share", "FILE", "basic"]],
    ),
    "basic.ipynb": (lambda: notebook(solution("basic")), [["grade", "FILE"]]),
    "basic.json": (trace, [["verify", "FILE"], ["verify", "FILE", "--puzzle", "basic"]]),
    "order.csv": (lambda: write_table(one_f_one_b(2, 3)), [["import", "FILE"]]),
    "costs.json": (
        lambda: json.dumps(record_to_json(costs_named("parts"))),
        [["run", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--size", "2,2,2", "--costs", "FILE", "--no-tensors"]],
    ),
    "rank0.json": (recorded, [["profile", "FILE", "--ranks", "0"]]),
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
def test_it_changes_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
def test_a_target_that_is_written_into_such_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
