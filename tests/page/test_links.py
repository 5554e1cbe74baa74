"""Links to code and to runs: they give back what they hold."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles import version
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli.share import judge_saved
from puzzles.page.in_browser import calls
from tests.screens.texts import approved
from tests.support.commands import puzzles
from tests.support.examples import LETTERS, examples
from tests.support.pages import read_link
from tests.test_imports import ROOT

IN_LINKS = set(string.ascii_letters + string.digits + "-_")


@examples(15)
@given(st.text(LETTERS, max_size=300), st.sampled_from(("code", "run", "timetable")))
def test_a_link_gives_back_what_it_holds(text: str, kind: str) -> None:
    made = calls.link("https://example.org/#old", "gpipe", kind, text)
    assert made.startswith(f"https://example.org/#gpipe/{kind}/")
    assert set(made.rpartition("/")[2]) <= IN_LINKS
    assert read_link(made) == ("gpipe", kind, text)


# --- The command ---


def share(*arguments: str) -> tuple[int, str, str]:
    done = puzzles("share", *arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_shares_code_and_runs() -> None:
    file = ROOT / "solutions" / "zb_h1.py"
    code, printed, _ = share(str(file), "zb_h1", "--site", "https://example.org/")
    assert (code, read_link(printed.strip())) == (0, ("zb_h1", "code", file.read_text(encoding="utf-8")))
    code, printed, _ = share(str(file), "zb_h1", "--run", "--site", "https://example.org/")
    slug, kind, trace = read_link(printed.strip())
    assert (code, slug, kind) == (0, "zb_h1", "run")
    assert judge_saved(PUZZLES["zb_h1"], trace.encode()).stars == 3


def test_of_several_solutions_only_one_is_shared(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.py"
    file.write_text("from lib import Model\n\n\ndef both():\n    pass\n\n\ndef ddp(model):\n    both()\n\n\n"
                    "def fsdp(model):\n    both()\n")  # fmt: skip
    _, printed, _ = share(str(file), "fsdp", "--site", "x")
    text = read_link(printed.strip())[2]
    assert "def both" in text
    assert "def fsdp" in text
    assert "def ddp" not in text


def test_without_a_public_address_the_link_is_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    code, printed, warned = share(str(ROOT / "solutions" / "ddp.py"), "ddp")
    assert (code, printed.startswith("http://127.0.0.1:8000/#ddp/code/")) == (0, True)
    approved("links", "without a public address the link is for this machine", warned)


def test_a_public_address_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", lambda: {"Play": "https://acme.github.io/x/"})
    code, printed, warned = share(str(ROOT / "solutions" / "ddp.py"), "ddp")
    assert (code, printed.startswith("https://acme.github.io/x/#ddp/code/"), warned) == (0, True, "")


@pytest.mark.parametrize(
    ("text", "slug", "more", "facts"),
    [
        ("x = 1\n", "ddp", [], ["has no ddp", "def ddp(model)"]),
        ("def ddp(model:\n", "ddp", [], ["line 1", "valid Python"]),
        ("def ddp(model):\n    pass\n", "ffn", [], ["no traces of ffn"]),
        ("async def ddp(model):\n    await model.receive()\n", "ddp", ["--run"], ["not correct", "receive"]),
    ],
)
def test_what_cannot_be_shared_is_one_clear_error(tmp_path, text, slug, more, facts) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.py"
    file.write_text(text)
    code, printed, said = share(str(file), slug, *more)
    assert (code != 0, printed) == (True, "")
    assert all(fact in said for fact in facts)
