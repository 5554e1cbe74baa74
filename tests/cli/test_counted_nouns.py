"""A noun after the number 1 is singular in what every command prints."""

import re
import shutil
from pathlib import Path

import pytest

from lib.ledger.algebra import counted
from tests.support.commands import puzzles
from tests.support.course import rules

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]
NOUNS = """
batches calls collectives cores devices elements files GPUs inputs layers lines microbatches outputs points processes
puzzles ranks sequences solutions splits stages steps timesteps traces updates
""".split()
PLURAL_AFTER_ONE = re.compile(rf"(?<![\w.,])1\s+(?:more\s+)?(?:{'|'.join(NOUNS)}|are|were)\b")

COMMANDS = (
    "plan --model llama-3-8b --gpus 1 --batch 1 --best 1",
    "plan --model llama-3-8b --gpus 1 --batch 1 --dp 1 --zero 0 --microbatch 1 --recompute none --best 1",
    "plan --model llama-3-8b --gpus 1 --tp 2",
    "plan --model llama-3-70b --gpus 1 --batch 1",
    "solve --ranks 1 --microbatches 1 --effort 0 --proof-seconds 0",
    "run ddp.py ddp --size 1,1,1 --small",
    "class . ddp.py",
    "gradescope --course . -o a.zip",
    "doctor",
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_noun_after_one_is_singular(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "solutions" / "ddp.py", "ddp.py")
    rules(tmp_path, "[points]\nddp = 1\n")
    result = puzzles(*command.split())
    assert result.output
    assert not isinstance(result.exception, Exception)
    assert PLURAL_AFTER_ONE.findall(result.output) == []


def test_counted_things() -> None:
    assert [counted(number, "batch") for number in (0, 1, 2, 2048)] == [
        "0 batches",
        "1 batch",
        "2 batches",
        "2,048 batches",
    ]
    assert counted(2, "process") == "2 processes"
