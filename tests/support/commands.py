"""Commands as tests type them, and reference solutions and notebooks as text."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from puzzles.commands.main import main

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / "solutions"


def puzzles(*words: object, code: int | None = None, input: str | None = None) -> Result:
    """What `puzzles` prints for these words; a traceback, or another exit code than `code`, fails the test."""
    result = CliRunner().invoke(main, [str(word) for word in words], input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert code is None or result.exit_code == code, result.output
    return result


def said(*words: object, code: int = 0) -> str:
    """What `puzzles` prints, as one line."""
    return " ".join(puzzles(*words, code=code).output.split())


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
