"""The table of mutations: what each changes, and the tests that are related to it."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


class TableError(Exception):
    """A row that cannot be tried; the text says which, and why."""


@dataclass(frozen=True)
class Mutation:
    """One change of a file: the text `old`, which it has exactly once, becomes `new`."""

    file: str
    old: str
    new: str
    words: str
    """What the change does to the rule."""
    tests: tuple[str, ...] = ()
    """The related tests; by default those of the longest prefix of its path in the table `[tests]`."""
    survives: str = ""
    """Why no test need catch it."""

    def applied(self, root: Path) -> str:
        """The file's text after the change.

        Raises:
            TableError: the old text is not in the file exactly once, or the new text is not Python.
        """
        path = root / self.file
        if not path.is_file():
            raise TableError(f"{self.file}: there is no such file ({self.words})")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise TableError(f"{self.file}: the old text is there {count} times, not once ({self.words}):\n{self.old}")
        changed = text.replace(self.old, self.new)
        if self.file.endswith(".py"):
            try:
                compile(changed, self.file, "exec")
            except SyntaxError as why:
                raise TableError(f"{self.file}: the new text is not Python: {why} ({self.words})") from None
        return changed


def read_table(path: Path, root: Path) -> list[Mutation]:
    """All mutations of a table, each of which can be tried on the files below `root`.

    Raises:
        TableError: some cannot; the text names every one of them.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    related: dict[str, list[str]] = content["tests"]
    mutations, problems = [], []
    for row in content["mutation"]:
        try:
            mutation = _mutation(row, related)
            mutation.applied(root)
            for test in mutation.tests:
                if not (root / test.partition("::")[0]).exists():
                    raise TableError(f"{test}: there are no such tests ({mutation.words})")
            mutations.append(mutation)
        except TableError as why:
            problems.append(str(why))
    if problems:
        raise TableError("\n".join(problems))
    return mutations


def _mutation(row: dict[str, Any], related: dict[str, list[str]]) -> Mutation:
    known = {field.name for field in fields(Mutation)}
    if unknown := row.keys() - known:
        raise TableError(f"a row has no field {', '.join(sorted(unknown))}: {row}")
    if missing := {"file", "old", "new", "words"} - row.keys():
        raise TableError(f"a row lacks {', '.join(sorted(missing))}: {row}")
    if not row.get("tests"):
        prefixes = [prefix for prefix in related if row["file"].startswith(prefix)]
        if not prefixes:
            raise TableError(f"{row['file']}: [tests] has no prefix of this path, and the row names no tests")
        row = {**row, "tests": related[max(prefixes, key=len)]}
    return Mutation(**{**row, "tests": tuple(row["tests"])})
