"""The gate runs every quick test that has not run, and of the slow ones another tenth for each commit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.selection import SHARE, left_to_the_gate


@dataclass(frozen=True)
class FakeTest:
    nodeid: str
    is_slow: bool = False

    @property
    def path(self) -> Path:
        return Path(self.nodeid.split("::")[0])

    def get_closest_marker(self, name: str) -> Any:
        return "a mark" if name == "slow" and self.is_slow else None


QUICK = [FakeTest(f"test_a.py::test[{number}]") for number in range(100)]
SLOW = [FakeTest(f"test_b.py::test[{number}]", is_slow=True) for number in range(1000)]


def ids(tests: Any) -> set[str]:
    return {test.nodeid for test in tests}


def test_of_the_quick_tests_those_that_have_run_are_left_out() -> None:
    chosen, others = left_to_the_gate(QUICK, "abc", ids(QUICK[:90]))  # type: ignore[arg-type]
    assert (chosen, others) == (QUICK[90:], QUICK[:90])


def test_a_share_of_the_slow_tests_is_chosen_by_the_seed_alone() -> None:
    for seed in ("abc", "def"):
        chosen, others = left_to_the_gate(SLOW, seed, set())  # type: ignore[arg-type]
        assert ids(chosen) | ids(others) == ids(SLOW)
        assert 0.5 < len(chosen) * SHARE / len(SLOW) < 1.5
        assert ids(left_to_the_gate(SLOW[::-1], seed, set())[0]) == ids(chosen)  # type: ignore[arg-type]


def test_commits_together_run_every_slow_test() -> None:
    seeds = map(str, range(150))
    seen = [ids(left_to_the_gate(SLOW, seed, set())[0]) for seed in seeds]  # type: ignore[arg-type]
    assert set.union(*seen) == ids(SLOW)


def test_where_nothing_has_run_the_seed_chooses_among_all() -> None:
    chosen, _ = left_to_the_gate([*QUICK, *SLOW], "abc", None)  # type: ignore[arg-type]
    assert 0.5 < len(chosen) * SHARE / 1100 < 1.5


def test_files_of_the_site_are_chosen_whole_and_its_main_page_always() -> None:
    files = ["test_site.py", *(f"test_site_{letter}.py" for letter in "abcdef")]
    tests = [FakeTest(f"tests/browser/{file}::test[{number}]", is_slow=True) for file in files for number in range(9)]
    seen = set[str]()
    for seed in map(str, range(20)):
        chosen, _ = left_to_the_gate(tests, seed, set())  # type: ignore[arg-type]
        run = {test.path.name for test in chosen}
        assert len(run) == 3
        assert "test_site.py" in run
        assert len(chosen) == 3 * 9
        seen |= run
    assert seen == set(files)
