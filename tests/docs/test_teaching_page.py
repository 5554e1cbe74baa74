"""docs/teaching.md: its commands are run as they are shown, one after the other, and its list of fields is complete."""

from __future__ import annotations

import csv
import inspect
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import puzzles.catalog.engine.puzzle as engines
import puzzles.catalog.layout as layouts
import puzzles.catalog.plan as plans
import puzzles.catalog.puzzle as texts
import puzzles.catalog.schedule as schedules
import puzzles.custom as toml_file
from puzzles.cli.main import main
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")


def run(line: str) -> tuple[int, str]:
    """A line of a shell: one of our commands, or mkdir or cp."""
    words = [str(found) for word in shlex.split(line, comments=True) for found in sorted(Path().glob(word)) or [word]]
    match words:
        case ["puzzles", *rest]:
            result = CliRunner().invoke(main, rest)
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
            return result.exit_code, result.output
        case ["mkdir", folder]:
            Path(folder).mkdir()
        case ["cp", source, target]:
            shutil.copy(source, target)
        case _:
            raise AssertionError(f"the test cannot run: {line}")
    return 0, ""


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = {}
    for language, block in re.findall(r"^```(sh|toml|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if language != "sh":
            first = block.partition("\n")[0]
            Path(first.removeprefix("# ") if first.startswith("# ") else "week3/relay.toml").write_text(block)
            continue
        for line in block.splitlines():
            code, said[line] = run(line)
            wanted = re.search(r"# exits with (\d)", line)
            assert code == int(wanted[1] if wanted else 0), said[line]
    advised = [c for output in said.values() for c in re.findall(r"(puzzles (?:show|hint) relay [^']+)'", output)]
    assert {"show", "hint"} == {command.split()[1] for command in advised}
    assert [run(command)[0] for command in advised] == [0] * len(advised), "with the folder, as it was given"
    assert "grade mine.py --puzzles week3" in "".join(said.values())
    (checked,) = (output for line, output in said.items() if "check week3" in line)
    assert "relay: ready" in checked
    assert "time = 7" in Path("week3/relay.toml").read_text()
    (elsewhere,) = re.findall(r"^```\n(\[\[reference_at\]\].*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert elsewhere in Path("week3/relay.toml").read_text(), "as it is shown"
    book = list(csv.DictReader(Path("book.csv").read_text().splitlines()))
    assert [(row["ID"], row["relay"], row["points"]) for row in book] == [
        ("ann", "11.0", "11.0"),
        ("ben", "5.0", "5.0"),
    ]
    for name in ("out/index.html", "autograder.zip", "books/week3.ipynb"):
        assert Path(name).is_file(), name
    assert len(list(Path("out/students").iterdir())) == 2


def test_every_field_is_in_the_table() -> None:
    source = "".join(map(inspect.getsource, (toml_file, texts, schedules, engines, plans, layouts)))
    source = source.replace(inspect.getsource(texts.paper), "")  # its fields are those of papers.toml
    fields = set(re.findall(r'fields\.\w+\(\s*"(\w+)"', source))
    table = PAGE.partition("| field |")[2].partition("\n\n")[0]
    assert fields - set(re.findall(r"\[*(\w+)\]*`", table)) == set()
    assert len(fields) > 20
