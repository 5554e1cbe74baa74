"""All solutions in one file: it is Python with every definition, and its parts are the solutions again."""

from __future__ import annotations

import ast

import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.site.links import ClashError, joined, split
from tests.test_imports import ROOT

SLUGS = ("ddp", "fsdp", "gpipe", "zb_h1")
CODES = {slug: (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8") for slug in SLUGS}


def bare(text: str) -> list[str]:
    """The statements without comments, layout and docstrings."""
    return [ast.dump(node) for node in ast.parse(text).body if not isinstance(node, ast.Expr)]


def test_every_solution_comes_back() -> None:
    parts = split(joined(CODES), list(PUZZLES))
    assert list(parts) == list(SLUGS)
    for slug, code in CODES.items():
        definitions = [one for one in bare(code) if one.startswith(("AsyncFunctionDef", "FunctionDef"))]
        assert all(one in bare(parts[slug]) for one in definitions)
        assert sum(f"def {other}(" in parts[slug] for other in SLUGS) == 1
    assert joined(parts) == joined(split(joined(parts), list(PUZZLES)))


def test_what_is_shared_is_there_once_and_helpers_come_along() -> None:
    helper = "from lib import Model\n\n\ndef helper(x):  # with a comment\n    return x\n\n\n"
    text = joined(
        {slug: f"{helper}# about {slug}\ndef {slug}(model):\n    helper(model)\n" for slug in ("ddp", "fsdp")}
    )
    assert (text.count("def helper"), text.count("import Model"), text.count("# about")) == (1, 1, 2)
    parts = split(text, ["ddp", "fsdp"])
    assert all("def helper" in part and "with a comment" in part for part in parts.values())


def test_two_helpers_of_one_name_are_refused() -> None:
    codes = {slug: f"N = {i}\n\ndef {slug}(model):\n    return N\n" for i, slug in enumerate(("ddp", "fsdp"))}
    with pytest.raises(ClashError, match="ddp and fsdp both define N"):
        joined(codes)


def test_code_that_is_not_python_is_kept_as_a_comment() -> None:
    text = joined({"ddp": "def ddp(model):\n    x = (\n", "fsdp": CODES["fsdp"]})
    assert "#     x = (" in text
    assert list(split(text, list(PUZZLES))) == ["fsdp"]


def test_imports_from_the_future_come_first() -> None:
    code = "from __future__ import annotations\n\ndef fsdp(model):\n    pass\n"
    text = joined({"ddp": CODES["ddp"], "fsdp": code})
    compile(text, "mine.py", "exec")
