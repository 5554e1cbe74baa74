"""Commands as tests type them, and reference solutions and notebooks as text."""

import csv
import json
from pathlib import Path

from click.testing import CliRunner, Result

from puzzles.cli.main import main

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / "solutions"


def puzzles(*words: object, code: int | None = None, input: str | None = None) -> Result:
    """What `puzzles` prints for these words; a traceback, or another exit code than `code`, fails the test."""
    result = CliRunner().invoke(main, [str(word) for word in words], input=input, prog_name="puzzles")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert code is None or result.exit_code == code, result.output
    return result


def said(*words: object, code: int = 0) -> str:
    """What `puzzles` prints, as one line."""
    return as_line(puzzles(*words, code=code).output)


def as_line(text: str) -> str:
    """A text without the line breaks that a page has."""
    return " ".join(text.split())


def csv_rows(file: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file by the names of their columns."""
    with open(file, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def solution(slug: str) -> str:
    """The file of a reference: 'gpipe', 'engine/fsdp'."""
    return (SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8")


def notebook(*sources: str) -> str:
    """A notebook with these cells of code."""
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
        for source in sources
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})
