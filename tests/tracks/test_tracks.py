"""The tracks together: names that do not collide, lists that are easy to read, data that survives JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles.judge import progress
from puzzles.sandbox.plain_data import Foreign, pack, unpack
from puzzles.tracks import ALL, TRACKS, UnknownPuzzleError, find, find_several, groups
from tests.support.commands import puzzles
from tests.support.examples import LETTERS, examples

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

ROOT = Path(__file__).parents[2]


# --- Names ---


def test_no_two_puzzles_tracks_or_chapters_have_one_name() -> None:
    slugs = [slug for track in TRACKS.values() for slug in track.slugs]
    assert len(set(slugs)) == len(slugs) == len(ALL)
    names = {*TRACKS, *(group.name for group in groups())}
    assert not names & {slug.lower() for slug in slugs}
    assert len({group.name for group in groups()}) == sum(len(track.groups) for track in TRACKS.values())


@pytest.mark.sampled(24)
@pytest.mark.parametrize("slug", ALL)
def test_a_puzzle_is_found_by_its_slug_with_and_without_its_track(slug: str) -> None:
    track = ALL[slug]
    for name in (slug, f" {slug} ", f"{track.name}:{slug}", f"{track.name}:{slug.lower()}"):
        assert find(name).slug == slug
    assert find_several(slug) == (slug,)


def test_case_decides_where_two_puzzles_differ_in_nothing_else() -> None:
    assert [find(name).slug for name in ("fsdp", "FSDP", "Fsdp", "engine:fsdp", "onebucket", "7", "grad-accum")] == [
        *("fsdp", "FSDP", "fsdp", "FSDP", "OneBucket", "fsdp", "grad_accum")
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("engine:fsdb", "there is no engine puzzle 'fsdb'; did you mean 'FSDP'?"),
        ("layout:zzz", "there is no layout puzzle 'zzz'; 'puzzles list' names them all"),
        ("layouts:ffn", "there is no track 'layouts'; there are schedule, engine, layout"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, told: str) -> None:
    with pytest.raises(UnknownPuzzleError) as refused:
        find(name)
    assert str(refused.value).startswith(told)


# --- Lists ---


def test_the_list_shows_every_track_and_chapter_with_its_idea_and_the_stars() -> None:
    entries = progress.load()
    entries["FSDP"] = progress.PuzzleProgress(attempts=2, stars=3, figures={"sent": 18_432})
    progress.save(entries)
    page = puzzles("list").stdout
    words = " ".join(page.split())
    assert all(len(line) <= 80 for line in page.splitlines())
    assert all(track.title in page for track in TRACKS.values())
    chapters = [group for group in groups() if all(group.slugs != track.slugs for track in TRACKS.values())]
    places = [words.index(f" {group.name} {group.title} ") for group in chapters]
    assert places == sorted(places), "the classics first"
    assert len(page.splitlines()) < 24, "it fits a screen"
    assert f"the model 3 of {3 * len(TRACKS['engine'].groups[1].slugs)}" in words
    assert f"On real tensors: {TRACKS['engine'].idea} 3 of {3 * len(TRACKS['engine'].slugs)} stars" in words
    assert "checkpoint" in words, "the core puzzle after the one that was played last"


@pytest.mark.parametrize("name", TRACKS)
def test_the_list_of_a_track_shows_its_chapters(name: str) -> None:
    page = puzzles("list", name).stdout
    assert all(len(line) <= 80 for line in page.splitlines())
    assert all(group.title in page for group in TRACKS[name].groups)
    assert all(slug in page for slug in TRACKS[name].slugs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [group.name for group in groups()])
def test_a_chapter_is_listed_with_its_targets_and_starts_as_a_file(name: str) -> None:
    page = puzzles("list", name).stdout
    (group,) = (group for group in groups() if group.name == name)
    assert group.title in page
    assert group.idea.lower() in " ".join(page.split()).lower()
    assert all(slug in page for slug in group.slugs)
    assert puzzles("start", name).exit_code == 0
    graded = json.loads(puzzles("grade", "--json", "--puzzle", name, f"my_{name}.py").stdout)
    (file,) = graded["files"]
    assert [(one["puzzle"], one["status"]) for one in file["results"]] == [(s, "not_attempted") for s in group.slugs]


def test_a_puzzle_cannot_be_listed() -> None:
    result = puzzles("list", "fsdp")
    assert (result.exit_code, "'puzzles show fsdp'" in " ".join(result.stderr.split())) == (2, True)


def test_a_class_has_no_picture_and_a_layout_only_one() -> None:
    Path("mine.py").write_text("")
    for words, told in (
        (("draw", "mine.py", "FSDP"), "FSDP is a class, and classes have no picture"),
        (("draw", "mine.py", "ffn", "--pareto"), "ffn is a layout; only its plan can be drawn"),
        (
            ("run", "mine.py", "ffn", "-o", "ffn.svg"),
            "ffn is a layout, and 'puzzles draw' draws it; leave out -o",
        ),
        (("verify", "mine.py", "--puzzle", "ZeRO1"), "there are no traces of ZeRO1, a puzzle of the track 'engine'"),
        (("verify", "mine.py", "--puzzle", "FSDP"), "there are no traces of FSDP"),
        (("verify", "mine.py", "--puzzle", "FSDP"), "did you mean 'fsdp'?"),
    ):
        result = puzzles(*words)
        assert (result.exit_code, told in " ".join(result.stderr.split())) == (2, True), result.stderr


@pytest.mark.slow
def test_progress_of_all_tracks_is_kept_and_forgotten() -> None:
    solutions = [ROOT / "solutions" / name for name in ("engine/fsdp.py", "layout/ffn.py")]
    Path("mine.py").write_text("\n\n".join(path.read_text(encoding="utf-8") for path in solutions))
    progress.add_own_file("mine.py")
    assert puzzles("grade", "mine.py").exit_code == 0
    puzzles("hint", "FSDP", "-n", "2")
    page = " ".join(puzzles("status").stdout.split())
    assert "18,432 bytes sent" in page
    assert "12,288 bytes moved" in page
    puzzles("reset", "layout", "--yes", code=0)
    assert [progress.load()[slug].stars for slug in ("FSDP", "ffn")] == [2, 0]


# --- Plain data ---

dtypes = st.sampled_from(["<f4", "<f8", "<i8", "|b1", "<u2", "<c8", ">f4"])
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
arrays = st.builds(
    lambda dtype, shape: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape), dtypes, shapes
)
TEXTS = st.text(LETTERS)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | arrays
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return type(a) is type(b) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@examples(40)
@given(trees)
def test_what_is_packed_comes_back_as_it_was(tree: object) -> None:
    assert same(tree, unpack(json.loads(json.dumps(pack(tree)))))


def test_of_anything_else_only_the_type_is_kept() -> None:
    back = unpack(pack([object(), np.array([object()]), {1, 2}, np.float32(2)]))
    assert [type(one) for one in back] == [Foreign, Foreign, Foreign, np.float32]
    assert [one.what for one in back[:3]] == ["object", "ndarray", "set"]


@pytest.mark.parametrize(
    "data",
    [
        {"array": ["<f4", [2], "AAAA"]}, {"array": ["<f4", [10**13], ""]}, {"array": ["|O", [1], "AAAAAAAAAAA="]},
        {"array": ["<f4", [-1], ""]}, {"array": ["<f4", [1] * 40, "AAAAAA=="]}, {"array": ["no such", [], ""]},
        {"array": ["<f4", [1], "%%%"]}, {"array": ["<f4", [True], "AAAAAA=="]}, {"array": ["V4", [1], "AAAAAA=="]},
        {"pickle": "cos"}, {"dict": [[{"list": []}, 1]]}, {"dict": [[1]]}, {"list": 5}, [], {},
    ],
)  # fmt: skip
def test_what_somebody_else_has_packed_is_refused(data: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # several sentences, none of which a player sees
        unpack(data)


IN_ANOTHER = {("engine", "show"): "words", ("plan", "show"): "judge"}
"""Objects of a track that are not in the file of their name, since they have a few lines."""


@pytest.mark.parametrize("name", TRACKS)
def test_every_track_has_three_objects_in_files_of_their_names(name: str) -> None:
    track = TRACKS[name]
    parts = {part: type(getattr(track, part)).__module__ for part in ("judge", "words", "show")}
    assert parts == {part: f"puzzles.tracks.{name}.{IN_ANOTHER.get((name, part), part)}" for part in parts}
