"""Each rule of the feedback after a pass, on verdicts that are written down."""

from typing import Any

import pytest

from puzzles.catalog.path import CORE
from puzzles.judge.progress import PuzzleProgress, save
from puzzles.judge.verdict import Verdict
from puzzles.screens.feedback import MAX_BUILT, achieved, built, details, offers, story, third_star, what_next
from puzzles.tracks import ALL
from puzzles.tracks.outcomes import SEE_NOTE
from tests.support.fake_track import Fakes, FakeWords, a_verdict


def passed(**fields: Any) -> Verdict:
    return a_verdict(**{"figures": {"time": 8}, **fields})


# --- The third star ---


def test_the_track_says_what_the_third_star_takes(fakes: Fakes) -> None:
    fakes.words.third = "Three stars take 7 steps."
    assert third_star(passed(notes=("a note",))) == fakes.words.third


def test_where_the_track_says_nothing_the_last_note_is_the_reason(fakes: Fakes) -> None:
    for said in ("", SEE_NOTE):
        fakes.words.third = said
        assert third_star(passed(notes=("first.", "the peak doubles."))).endswith(": the peak doubles.")
        assert third_star(passed(stars=3, notes=("first",))) == third_star(passed()) == ""


@pytest.mark.parametrize("fields", [{"shown_size_only": True}, {"stars": 0}])
def test_a_failure_at_another_size_is_the_reason_whatever_the_track_says(fakes: Fakes, fields: dict[str, Any]) -> None:
    fakes.words.third = "Three stars take 7 steps."
    assert third_star(passed(notes=("it fails with n = 3",), **fields)).endswith(": it fails with n = 3.")


# --- What was built, and the rest ---


def test_the_story_is_what_was_built_what_a_second_step_needs_and_the_third_star(fakes: Fakes) -> None:
    fakes.words.third = "Three stars take 7 steps."
    assert story(passed(second_step="it needs 9")) == ["Concept of fake_a.", "It needs 9.", fakes.words.third]
    fakes.words.third = ""
    assert story(passed()) == ["Concept of fake_a."]


def test_a_second_step_is_told_once(fakes: Fakes) -> None:
    verdict = passed(second_step="a second step needs 9", notes=("a second step needs 9",))
    assert story(verdict)[1:] == [third_star(verdict)]


def test_achieved_are_the_margin_a_second_step_and_the_record(fakes: Fakes) -> None:
    fakes.words.third = "The record is 7."
    text = achieved(passed(second_step="a second step needs 9"))
    parts = ("2 steps under target", "A second step needs 9.", "The record is 7.")
    assert sorted(map(text.index, parts)) == list(map(text.index, parts))


COMPARED = ("It is best.", "The reference is slower.")


def test_details_are_what_the_story_leaves_out(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.words.third = "The record is 7."
    monkeypatch.setattr(FakeWords, "comparison", lambda *_: COMPARED)
    margin, compared, practice = details(passed())
    assert "2 steps under target" in margin
    assert "The record is 7." not in margin, "the story has it"
    assert compared == " ".join(COMPARED)
    assert "First practice. Second practice." in practice
    assert "Third" not in practice


def test_what_was_built_is_named_only_for_a_run_that_was_kept(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeWords, "built", lambda *_: "a pipeline")
    assert built(passed(trace="{}")).endswith("a pipeline. Concept of fake_a.")
    assert built(passed()) == "Concept of fake_a."


def test_of_a_long_concept_the_first_sentences_are_shown(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = f"A{'b' * 98}."
    object.__setattr__(puzzle := fakes.puzzle("fake_a"), "concept", " ".join([sentence] * 9))
    monkeypatch.setattr(Fakes, "puzzle", lambda *_: puzzle)
    assert built(passed()) == " ".join([sentence] * (MAX_BUILT // 100))


def test_a_reference_is_offered_only_where_there_is_one_and_a_file(fakes: Fakes) -> None:
    assert "compare mine.py ddp" in offers("mine.py", "ddp")
    assert offers("", "ddp") == offers("mine.py", "fake_a") == ""


# --- What comes next ---


def solved(*slugs: str) -> None:
    save({slug: PuzzleProgress(1, 2, {"time": 8}) if slug in slugs else PuzzleProgress() for slug in ALL})


def test_the_next_puzzle_is_named_with_its_command(fakes: Fakes) -> None:
    solved("fake_a")
    text = what_next("fake_a", ["fake_a"])
    assert "Title of fake_b" in text
    assert "show fake_b" in text


def test_the_largest_unit_that_is_finished_is_praised(fakes: Fakes) -> None:
    solved("fake_a")
    chapter = what_next("fake_b", ["fake_b"])
    assert ("First fakes" in chapter, f"'{fakes.title}'" in chapter) == (True, False)
    solved(*fakes.slugs)
    assert f"'{fakes.title}'" in what_next("fake_b", ["fake_b"])
    solved("fake_a")
    assert "First fakes" not in what_next("fake_a", ["fake_a"]), "fake_b is left"
    solved("fake_a", "fake_b")
    assert "First fakes" not in what_next("fake_b"), "not finished just now"
    solved(*CORE)
    assert "core path" in what_next(CORE[-1], [CORE[-1]])


def test_nothing_is_next_after_every_puzzle(fakes: Fakes) -> None:
    solved(*ALL)
    assert "show" not in what_next("fake_b", ["fake_b"])
