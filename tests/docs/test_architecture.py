"""docs/architecture.md: the stops of a run are those of a real run, in their order, and every room has a line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from docs.generate import architecture
from drawing import svg
from puzzles.cli.main import main
from puzzles.sandbox import client
from tests.test_imports import imports, modules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

FOLLOW = """
def follow(path, root):
    '''Writes each function of ours, when it is first called, to a file that forked processes share.'''
    import mmap, sys
    with open(path, "r+b") as file:
        log = mmap.mmap(file.fileno(), 0)
    seen = set()

    def note(frame, event, arg):
        code = frame.f_code
        key = code.co_filename, code.co_qualname
        if event == "call" and key not in seen and code.co_filename.startswith(root):
            seen.add(key)
            row = f"{code.co_filename[len(root) + 1:]} {code.co_qualname}\\n".encode()
            at = int.from_bytes(log[:8], "little") or 8
            log[at : at + len(row)] = row
            log[:8] = (at + len(row)).to_bytes(8, "little")

    sys.setprofile(note)
"""


def stops() -> list[str]:
    return [f"{file} {name}" for file, name in re.findall(r"^\|[ \d]+\| `(.*?)` \| `(.*?)` \|", PAGE, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.own_server
def test_a_run_makes_the_ten_stops_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process tier, whose processes can write to the file; the profile of a parent goes on in its forks."""
    log, submission = tmp_path / "log", tmp_path / "mine.py"
    log.write_bytes(bytes(1 << 20))
    submission.write_text((ROOT / "solutions" / "ddp.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = client.command

    def followed(*given: object) -> list[str]:
        *words, program = command(*given)  # type: ignore[arg-type]
        return [*words, f"{FOLLOW}\nfollow({str(log)!r}, {str(ROOT)!r})\n{program}"]

    monkeypatch.setattr(client, "command", followed)
    names: dict[str, object] = {}
    exec(FOLLOW, names)
    before = sys.getprofile()
    names["follow"](str(log), str(ROOT))  # type: ignore[operator]
    try:
        main(["grade", str(submission), "--puzzle", "ddp"], standalone_mode=False)
    finally:
        sys.setprofile(before)
    written = log.read_bytes()
    called = written[8 : int.from_bytes(written[:8], "little")].decode().splitlines()
    named = stops()
    assert len(re.findall(r"^\| +\d+ \|", PAGE, re.MULTILINE)) == 10
    assert [*dict.fromkeys(call for call in called if call in named)] == named


def test_the_arrows_of_the_picture_are_the_imports() -> None:
    """Against the imports as tests/test_imports.py reads them: none is missing, and none is there without an import."""
    places = {name: room for name in modules() if (room := architecture.room_of(name))}
    direct = {(room, places[to]) for name, room in places.items() for to, _ in imports(name) if to in places}
    drawn = {(room, to) for room, ends in architecture.arrows(architecture.built_on()).items() for to in ends}
    chains = set(drawn)
    while longer := {(a, d) for a, b in chains for c, d in drawn if b == c} - chains:
        chains |= longer
    assert {(room, to) for room, to in direct if room != to} <= chains
    outside = {to for name in modules() if name not in places for to, _ in imports(name)}
    assert {(room, to) for room, to in drawn - direct if not any(places.get(name) == to for name in outside)} == set()


def test_the_picture_is_that_of_today() -> None:
    assert (ROOT / "docs/pictures/architecture.svg").read_text(encoding="utf-8") == svg(architecture.picture())


QUESTIONS = re.findall(r"^\| (.*\?) \| `(.*?)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("question", "file"), QUESTIONS)
def test_a_strangers_question_finds_its_file(question: str, file: str) -> None:
    """A search for the noun, which is marked in the question: names of files first, then the files that use it most."""
    (noun,) = re.findall(r"\*(.*?)\*", question)
    rows = []
    for path in (path for name in ("lib", "drawing", "puzzles") for path in (ROOT / name).rglob("*")):
        if path.suffix in (".py", ".toml"):
            uses = path.read_text(encoding="utf-8").lower().count(noun.lower())
            rows.append((noun.lower() not in path.stem.lower(), -uses, path.relative_to(ROOT).as_posix()))
    assert file in [name for *_, name in sorted(rows)[:3]]


def test_ten_questions_are_asked() -> None:
    assert len(QUESTIONS) == 10
