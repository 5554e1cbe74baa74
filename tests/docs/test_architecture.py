"""docs/architecture.md: the stops of a run are those of a real run, in their order, and every room has a line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from puzzles.cli.main import main
from puzzles.sandbox import client
from tests.test_imports import ORDER

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


def test_every_room_has_a_line() -> None:
    rooms = PAGE.split("## Rooms")[1].split("\n## ")[0]
    packages = {"/".join(place.split(".")[:2]) for place in ORDER if "." in place}
    folders = [
        name for name in packages if (ROOT / name).is_dir() and not name.startswith(("drawing", "puzzles/package"))
    ]
    assert [name for name in folders if f"`{name}/`" not in rooms] == []
