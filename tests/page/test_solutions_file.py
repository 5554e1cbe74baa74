"""A file with several solutions: the code for each puzzle is the file without the definitions of the others."""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.page.in_browser.calls import split
from tests.test_imports import ROOT

SLUGS = ("ddp", "fsdp", "gpipe", "zb_h1")
CODES = {slug: (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8") for slug in SLUGS}

HEAD = '"""About all."""\n\nfrom lib import Model\n\n\ndef helper(x):  # with a comment\n    return x\n\n'
DDP = '@helper\n@helper\ndef ddp(model):\n    """\f\u2028"""\n    helper(model)\n'
FSDP = "async def fsdp(\n    model,\n):\n    helper(model)  # and one here\n"


@pytest.mark.parametrize("between", ["", "\n\n", "# about fsdp\n", "N = 1\n", "\f\n"])
@pytest.mark.parametrize("end", ["", "# the end", "\n\n# the end\n"])
def test_all_but_other_definitions_stays_byte_for_byte(between: str, end: str) -> None:
    parts = split(HEAD + DDP + between + FSDP + end, list(PUZZLES))
    assert parts == {"ddp": HEAD + DDP + between + end, "fsdp": HEAD + between + FSDP + end}


def test_every_solution_comes_back_with_its_definition_only() -> None:
    parts = split("\n\n".join(CODES.values()), list(PUZZLES))
    assert list(parts) == list(SLUGS)
    for slug, code in CODES.items():
        assert code[code.index(f"def {slug}(") :] in parts[slug] + "\n"
        assert sum(f"def {other}(" in parts[slug] for other in SLUGS) == 1


def test_a_file_with_one_solution_is_its_code() -> None:
    assert split(CODES["zb_h1"], list(PUZZLES)) == {"zb_h1": CODES["zb_h1"]}


def test_two_statements_on_one_line_stay_together() -> None:
    text = "ddp = 1; fsdp = 2\n"
    assert split(text, list(PUZZLES)) == {"ddp": text, "fsdp": text}
