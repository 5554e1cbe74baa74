"""Refusals: what is expected of one, schedules with their refusals, and forged records of a trace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from re import sub
from typing import Any

import pytest

from lib import Op, PuzzleError, Setting, Trace
from lib.errors import Sentence


class Refused:
    """A refusal that is expected: its reason, and facts that a reader needs. A `with` statement expects it of its body.

    A fact is compared as a sentence shows it. `place`, the rank and call, need not be complete.
    """

    def __init__(
        self, reason: str, /, place: str = "", error: type[BaseException] = PuzzleError, **facts: object
    ) -> None:
        self.reason, self.place, self.error, self.facts = reason, place, error, facts

    def __repr__(self) -> str:
        return f"Refused({self.reason!r}, {self.place!r}, {self.facts})"

    def require(self, error: object) -> None:
        """Requires that an error is this refusal."""
        assert isinstance(error, self.error), f"not refused: {error!r}"
        self.require_sentence(getattr(error, "problem", None) or error.args[0])
        assert self.place in getattr(error, "place", ""), error

    def require_sentence(self, sentence: object) -> None:
        """Requires that a sentence says this."""
        assert isinstance(sentence, Sentence), f"a sentence without a reason: {sentence}"
        while sentence.reason != self.reason and isinstance(sentence.facts.get("why"), Sentence):
            sentence = sentence.facts["why"]  # what a reader of a file says is the refusal of what is in it
        said = {name: fact for name, fact in sentence.facts.items() if name in self.facts}
        assert (sentence.reason, _shown(said)) == (self.reason, _shown(self.facts)), sentence

    def __enter__(self) -> None:
        self._raises = pytest.raises(self.error)
        self._caught = self._raises.__enter__()

    def __exit__(self, *ending: Any) -> bool:
        raised = bool(self._raises.__exit__(*ending))
        self.require(self._caught.value)
        return raised


def _shown(facts: dict[str, object]) -> dict[str, str]:
    """Facts as a sentence shows them, without lines of the file that a test is in."""
    return {name: sub(r"(,| on) line \d+( of [\w/]+\.py)?,?", "", str(fact)) for name, fact in facts.items()}


Edit = Callable[[list[Op]], list[Op]]


class Refusals(dict[str, tuple[Any, Setting, Refused]]):
    """By name: a schedule that must be refused, its setting, and the refusal."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def __call__(self, expected: Refused, setting: Setting | None = None) -> Callable[[Any], Any]:
        """Registers a schedule that must be refused so."""

        def register(schedule: Any) -> Any:
            assert schedule.__name__ not in self, "each schedule has its own name"
            self[schedule.__name__] = (schedule, setting or self.setting, expected)
            return schedule

        return register


def edited(trace: Trace, edit: Edit, rank: int | None = None) -> Trace:
    """The trace with the same edit of every rank's operations, or of one rank's."""
    ranks = (edit(list(ops)) if rank in (None, r) else ops for r, ops in enumerate(trace.ranks))
    return replace(trace, ranks=tuple(map(tuple, ranks)))


def nth(ops: Sequence[Op], name: str, n: int = 0) -> int:
    """The index of the n-th operation of a name."""
    return [i for i, op in enumerate(ops) if op.name == name][n]


def with_columns(name: str, n: int = 0, **columns: Any) -> Edit:
    """Changes columns of the n-th operation of a name."""

    def edit(ops: list[Op]) -> list[Op]:
        at = nth(ops, name, n)
        ops[at] = ops[at]._replace(**columns)
        return ops

    return edit
