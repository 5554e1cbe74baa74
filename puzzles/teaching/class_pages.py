"""A class as a folder of web pages: a sortable index, a page for each student, and the texts of the puzzles once."""

import base64
import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from puzzles.judge.handed_in import without_runs
from puzzles.judge.submission import shared_folder
from puzzles.judge.verdict import NOTHING_STATED, Graded, Scoring, Verdict
from puzzles.screens.html import attempts, rendered, write
from puzzles.screens.standings import SHOWN_SIZE, name_in, points_text, shown_size_mark, slugs_of
from puzzles.tracks import ALL

INDEX = ".pages.json"
"""Keeps a folder's salt, and lists the pages of students in it. It is for the teacher."""


class PageNames:
    """The pages of a folder's students. Names depend on the salt and on the label of the submission in its class."""

    def __init__(self, folder: Path | None, labels: Sequence[str]) -> None:
        """`labels` by unit; equal ones get pages of their own. Without a folder the salt is used once."""
        salt: Any = None
        names: Any = None
        with suppress(OSError, ValueError, RecursionError, AttributeError):
            known = json.loads((folder / INDEX).read_text(encoding="utf-8")) if folder else {}
            salt, names = known.get("salt"), known.get("files")
        self._salt = salt if isinstance(salt, str) and len(salt) == 32 else secrets.token_hex(16)
        self._earlier = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        self._digests: list[str] = []
        seen: Counter[str] = Counter()
        for label in labels:
            self._digests.append(self._digest(f"{label}\0{seen[label]}" if seen[label] else label))
            seen[label] += 1

    def _digest(self, text: str) -> str:
        return blake2b(text.encode("utf-8", "surrogatepass"), key=self._salt.encode(), digest_size=10).hexdigest()

    def page(self, unit: int) -> str:
        return f"students/{self._digests[unit]}.html"

    @property
    def pages(self) -> set[str]:
        return {self.page(unit) for unit in range(len(self._digests))}

    @property
    def stale(self) -> set[str]:
        """Pages that an earlier run has written and this one does not."""
        return self._earlier - self.pages

    def index(self, with_stale: bool) -> str:
        """The text of the index: first with the stale pages, and without them when they are gone."""
        pages = self.pages | (self.stale if with_stale else set())
        return json.dumps({"salt": self._salt, "files": sorted(pages)}, indent=1) + "\n"


LETTERS = {"passed": "p", "over_target": "o", "failed": "f", "not_attempted": "n"}
"""Classes of the index's cells, which are short because there are thousands."""


class ClassPages:
    """Pages of a class in a folder. Each student's is written as soon as that file is graded, so that the runs of a
    whole class need not fit in memory."""

    def __init__(
        self,
        folder: str,
        names: PageNames,
        paths: Sequence[str],
        scoring: Scoring = NOTHING_STATED,
        keeps_traces: bool = False,
        colour: str = "layer",
    ) -> None:
        """`names` of the pages; `paths` of all submissions by unit; `keeps_traces` if somebody else needs the runs;
        `colour` is what the colours of operations show in the pictures."""
        self.folder = Path(folder)
        self.keeps_traces = keeps_traces
        self.colour = colour
        self.scoring = scoring
        self._names = names
        self._shared = shared_folder(paths)
        self._linked: set[str] = set()
        self.problem = ""
        self._write(INDEX, lambda: names.index(with_stale=True))

    def add(self, graded: Graded) -> Graded:
        """Writes the page of one student; returns the verdicts without their runs, unless those are kept."""
        self._write(self._names.page(graded.unit), lambda: self._student(graded))
        return graded if self.keeps_traces else without_runs(graded)

    def finish(self, graded: Sequence[Graded]) -> str:
        """Writes the index and the texts of the puzzles. Returns a sentence on the first page that could not be
        written, if there is one."""
        slugs = slugs_of(graded)
        self._write("index.html", lambda: self._index(graded, slugs))
        told = [(track, track.puzzle(slug)) for slug, track in ALL.items() if slug in slugs or slug in self._linked]
        self._write("puzzles.html", lambda: rendered("puzzle_texts.html", told=told))
        inside = self.folder.resolve()
        for page in (self.folder / name for name in self._names.stale):
            with suppress(OSError):
                if page.resolve().is_relative_to(inside):
                    page.unlink(missing_ok=True)
        self._write(INDEX, lambda: self._names.index(with_stale=False))
        return self.problem

    def _student(self, graded: Graded) -> str:
        found = attempts(graded.verdicts, self.colour)
        self._linked.update(slug for one in found for slug, _ in (one["named"], *one["also"]))
        for one in found:
            one["points"] = self.scoring.facts(graded, one["verdict"])
        points = points_text(graded, self.scoring) if self.scoring.is_stated else ""
        missing = [v.puzzle for v in graded.verdicts if not v.attempted and not v.message]
        said = {"name": self._name(graded), "attempts": found, "missing": missing, "points": points}
        return rendered("student.html", **said, people=[one.name or one.id for one in graded.student.members])

    def _index(self, graded: Sequence[Graded], slugs: Sequence[str]) -> str:
        rows = []
        by_file = [{v.puzzle: v for v in one.verdicts} for one in graded]
        for one, by_slug in zip(graded, by_file):
            total = sum(v.stars for v in one.verdicts)
            passed = sum(v.status == "passed" for v in one.verdicts)
            cells = [_cell(by_slug.get(slug)) for slug in slugs]
            totals = [passed, total, *(f"{number:g}" for number in self.scoring.facts(one).values())]
            rows.append({"name": self._name(one), "page": self._names.page(one.unit), "cells": cells, "totals": totals})
        more = {"points": self.scoring.is_stated, "late": self.scoring.late}
        titles = ["passed", "stars", *(title for title, is_shown in more.items() if is_shown)]
        marked = any(v.shown_size_only for one in graded for v in one.verdicts)
        script = (resources("puzzles.screens") / "templates" / "sort.js").read_text(encoding="utf-8").strip()
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        counts = [Counter(_stars(verdicts.get(slug)) for verdicts in by_file) for slug in slugs]
        labels = {3: "★★★", 2: "★★", 1: "★ (over target)", 0: "failed", -1: "not attempted"}
        summary = [(label, [one[stars] for one in counts]) for stars, label in labels.items()]
        content = {"slugs": slugs, "rows": rows, "summary": summary, "titles": titles, "mark": SHOWN_SIZE * marked}
        return rendered("index.html", **content, script=script, digest=digest)

    def _name(self, graded: Graded) -> str:
        return name_in(graded, self._shared)

    def _write(self, name: str, content: Callable[[], str]) -> None:
        """Makes and writes a page; whatever fails is a problem of this page alone, and costs no verdict."""
        problem = write(self.folder / name, content)
        self.problem = self.problem or problem


def _stars(verdict: Verdict | None) -> int:
    """Of who has not tried: -1."""
    return verdict.stars if verdict is not None and verdict.attempted else -1


def _cell(verdict: Verdict | None) -> tuple[str, str]:
    if verdict is None or not verdict.attempted:
        return "n", ""
    return LETTERS[verdict.status], ("★" * verdict.stars or verdict.reason or "failed") + shown_size_mark(verdict)
