"""Each rule of a player's progress: what counts as best, what is solved, and which puzzle comes next."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.path import CORE
from puzzles.judge import progress
from puzzles.judge.progress import PuzzleProgress, add, next_slug, solved_slugs
from puzzles.judge.verdict import Graded
from puzzles.tracks import ALL, chapter_of, track_of
from tests.support.fake_track import Fakes, a_verdict

# --- The best attempt ---


def entry_after(*attempts: tuple[int, dict[str, float]]) -> PuzzleProgress:
    entry = PuzzleProgress()
    for stars, figures in attempts:
        add(entry, a_verdict(stars=stars, figures=figures))
    return entry


def test_an_attempt_that_fails_counts_and_changes_no_best() -> None:
    entry = entry_after((2, {"time": 8}), (0, {}))
    assert (entry.attempts, entry.stars, entry.figures) == (2, 2, {"time": 8})


def test_the_best_attempt_has_the_most_stars_then_the_lowest_figures_in_their_order() -> None:
    for earlier, later, is_better in (
        ((1, {"time": 8}), (2, {"time": 9}), True),
        ((2, {"time": 9}), (1, {"time": 8}), False),
        ((2, {"time": 9, "memory": 1}), (2, {"time": 8, "memory": 2}), True),
        ((2, {"time": 8, "memory": 1}), (2, {"time": 8, "memory": 2}), False),
        ((2, {"time": 8, "memory": 2}), (2, {"time": 8, "memory": 1}), True),
    ):
        entry = entry_after(earlier, later)
        assert (entry.stars, entry.figures) == (later if is_better else earlier)


def test_the_best_of_an_entry_is_a_copy() -> None:
    figures = {"time": 8.0}
    entry = entry_after((2, figures))
    figures["time"] = 1.0
    assert entry.figures == {"time": 8}


def test_the_first_correct_attempt_is_the_best_even_without_stars() -> None:
    assert entry_after((0, {"time": 8})).figures == {"time": 8}


# --- Kept ---


def test_verdicts_are_remembered_with_the_turn(fakes: Fakes) -> None:
    progress.remember_verdicts([a_verdict("fake_b", figures={"time": 8}), a_verdict("fake_c", "failed", 0)])
    progress.remember_verdicts([a_verdict("fake_a", "failed", 0)])
    entries = progress.load()
    assert {slug: (entries[slug].turn, entries[slug].attempts) for slug in fakes.slugs} == {
        "fake_a": (2, 1), "fake_b": (1, 1), "fake_c": (1, 1), "fake_d": (0, 0)}  # fmt: skip
    assert (entries["fake_b"].stars, entries["fake_b"].figures) == (2, {"time": 8})


def test_only_attempts_in_the_players_own_files_are_remembered(fakes: Fakes, tmp_path: Path) -> None:
    graded = Graded(str(tmp_path / "a.py"), (a_verdict("fake_a"), a_verdict("fake_b", "not_attempted", 0)))
    progress.remember(graded)
    assert progress.load()["fake_a"].attempts == 0
    progress.add_own_file(tmp_path / "a.py")
    progress.remember(graded)
    assert (progress.load()["fake_a"].attempts, progress.load()["fake_b"].attempts) == (1, 0)


def test_a_file_is_the_players_own_by_its_real_path(tmp_path: Path, home_of_its_own: Path) -> None:
    mine = tmp_path / "a\nb.py"
    assert not progress.is_own_file(mine)
    for _ in range(2):
        progress.add_own_file(tmp_path / "." / "a\nb.py")
    assert progress.is_own_file(str(mine))
    assert not progress.is_own_file(tmp_path / "b.py")
    assert len((home_of_its_own / "own_files").read_text().split()) == 1, "once"


def test_nothing_attempted_writes_no_file(home_of_its_own: Path) -> None:
    progress.remember_verdicts([])
    assert list(home_of_its_own.iterdir()) == []


def test_only_entries_that_say_something_are_written(home_of_its_own: Path) -> None:
    entries = progress.load()
    assert set(entries) == set(ALL)
    entries["ddp"].hints = 2
    progress.save(entries)
    assert json.loads((home_of_its_own / "progress.json").read_text())["puzzles"] == {
        "ddp": asdict(PuzzleProgress(hints=2))
    }
    assert [path.name for path in home_of_its_own.iterdir()] == ["progress.json"], "no draft is left"
    assert progress.load() == entries


def kept(home: Path, row: Any) -> PuzzleProgress:
    (home / "progress.json").write_text(json.dumps({"version": 2, "puzzles": {"ddp": row}}))
    return progress.load()["ddp"]


def test_fields_and_puzzles_of_later_versions_are_left_out(home_of_its_own: Path) -> None:
    assert kept(home_of_its_own, {"attempts": 3, "medals": 1}) == PuzzleProgress(3)
    (home_of_its_own / "progress.json").write_text('{"puzzles": {"a_later_puzzle": {"attempts": 1}}}')
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


@pytest.mark.parametrize("row", [{"stars": "3"}, {"figures": []}, {"figures": {"time": "8"}}, {"turn": None}, 3, []])
def test_an_entry_that_cannot_be_read_counts_as_empty(home_of_its_own: Path, row: Any) -> None:
    assert kept(home_of_its_own, row) == PuzzleProgress()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"puzzles": 3}', b"\xff"])
def test_a_file_that_cannot_be_read_counts_as_empty(home_of_its_own: Path, text: bytes) -> None:
    (home_of_its_own / "progress.json").write_bytes(text)
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


def test_the_last_hint_that_was_read_is_kept() -> None:
    for number, last in ((2, 2), (1, 2), (3, 3)):
        progress.remember_hint("ddp", number)
        assert progress.load()["ddp"].hints == last


def test_named_puzzles_are_forgotten_or_all() -> None:
    for slug in ("basic", "ddp", "fsdp"):
        progress.remember_hint(slug, 1)
    progress.forget(["ddp"])
    assert [slug for slug, entry in progress.load().items() if entry.hints] == ["basic", "fsdp"]
    progress.forget()
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


# --- What comes next ---


def entries_with(**stars: int) -> dict[str, PuzzleProgress]:
    """The entries of a player with these stars, in the order in which they were graded."""
    entries = {slug: PuzzleProgress() for slug in ALL}
    for turn, (slug, number) in enumerate(stars.items(), 1):
        entries[slug] = PuzzleProgress(1, number, {"time": 8} if number else {}, turn=turn)
    return entries


def test_two_stars_solve_a_puzzle() -> None:
    entries = entries_with(basic=3, ddp=2, fsdp=1, gpipe=0)
    assert solved_slugs(entries) == {"basic", "ddp"}
    assert solved_slugs(entries, stars=3) == {"basic"}
    assert solved_slugs(entries, ["gpipe"]) == {"basic", "ddp", "gpipe"}


def test_the_first_puzzle_is_the_first_of_the_core_path() -> None:
    assert next_slug(entries_with()) == CORE[0]


def test_a_puzzle_that_is_not_solved_is_next_again() -> None:
    assert next_slug(entries_with(basic=3, grad_accum=1)) == "grad_accum"


def test_after_a_core_puzzle_comes_the_next_of_the_path() -> None:
    assert next_slug(entries_with(basic=3)) == "grad_accum"
    assert next_slug(entries_with(basic=3, grad_accum=2)) == "ddp"


def test_what_a_solved_puzzle_builds_on_is_left_out() -> None:
    assert "zero1" not in solved_slugs(entries_with(fsdp=2))
    following = next_slug(entries_with(fsdp=2))
    assert following is not None
    assert CORE.index(following) > CORE.index("fsdp")


def test_the_puzzle_that_was_graded_last_decides() -> None:
    assert next_slug(entries_with(gpipe=2, basic=2)) != next_slug(entries_with(basic=2, gpipe=2))
    assert next_slug(entries_with(basic=2, gpipe=1)) == "gpipe"
    assert next_slug(entries_with(basic=2, gpipe=1), after="basic") == next_slug(entries_with(basic=2))


def test_after_an_extra_puzzle_comes_its_chapter_then_the_path(fakes: Fakes) -> None:
    assert next_slug(entries_with(), "fake_a") == "fake_a"
    assert next_slug(entries_with(fake_a=2)) == "fake_b"
    assert next_slug(entries_with(fake_a=2, fake_b=2)) == CORE[0]
    solved = dict.fromkeys(CORE, 2)
    assert next_slug(entries_with(**solved, fake_a=2, fake_b=2)) == "fake_c", "the path is done: the next of its track"


def test_after_the_path_comes_the_rest_of_the_track_then_any_other() -> None:
    after = CORE[-1]
    solved = dict.fromkeys(CORE, 2)
    following = next_slug(entries_with(**solved), after)
    assert following in track_of(after).slugs
    rest = dict.fromkeys(track_of(after).slugs, 2)
    other = next_slug(entries_with(**{**solved, **rest}), after)
    assert other == next(slug for slug in ALL if slug not in {**solved, **rest})


def test_nothing_comes_after_every_puzzle() -> None:
    assert next_slug(entries_with(**dict.fromkeys(ALL, 2))) is None
    assert next_slug(entries_with(**dict.fromkeys(ALL, 2)), stars=3) is not None


def test_a_puzzle_that_was_passed_now_counts_as_solved() -> None:
    extra = next(slug for slug in ALL if slug not in CORE and chapter_of(slug).slugs[-1] != slug)
    slugs = chapter_of(extra).slugs
    assert next_slug(entries_with(), extra, [extra]) == slugs[slugs.index(extra) + 1]
