"""A teacher's comments on submissions: a CSV file, or a folder with a Markdown file for each student."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from puzzles.failure import sanitized
from puzzles.tracks import UnknownPuzzleError, find

from .handed_in import Submitted
from .roster import CourseError, cells, folded, name_forms, rows_of

Comment = tuple[str, str]
"""The puzzle that it is on, or nothing, and its text as Markdown."""


class Comments:
    """Comments by the words that mean a student."""

    def __init__(self, by_word: Mapping[str, list[Comment]]) -> None:
        self._by_word = by_word

    def on(self, submitted: Submitted) -> list[Comment]:
        """The comments on a submission."""
        return [comment for word in _words(submitted) for comment in self._by_word.get(word, ())]

    def unknown(self, submitted: Iterable[Submitted]) -> list[str]:
        """The words that mean nobody, or several."""
        words = [word for one in submitted for word in _words(one)]
        return [word for word in self._by_word if words.count(word) != 1]


def read_comments(path: Path) -> Comments:
    """The comments in a CSV file with the columns `name`, `id` or `email`, `comment` and perhaps `puzzle`; or in files
    of a folder, each named after a student: ann.md.
    """
    found: dict[str, list[Comment]] = {}
    if path.is_dir():
        for file in sorted(path.glob("*.md")):
            try:
                found.setdefault(folded(file.stem), []).append(("", file.read_text(encoding="utf-8-sig")))
            except (OSError, UnicodeDecodeError) as why:
                raise CourseError(f"{file}: {getattr(why, 'strerror', None) or why}") from None
        return Comments(found)
    for number, row in enumerate(rows_of(path), 2):
        texts = cells(row, "comment")
        who = [*cells(row, "id"), *cells(row, "email"), *cells(row, "others"), *cells(row, "name")]
        if texts and who:
            slug = _slug(" ".join(cells(row, "puzzle")), f"{path}, line {number}")
            found.setdefault(folded(who[0]), []).append((slug, texts[0]))
        elif texts:
            raise CourseError(f"{path}, line {number}: it does not say whom the comment is for")
    return Comments(found)


def _slug(name: str, where: str) -> str:
    try:
        return name and find(name).slug
    except UnknownPuzzleError as why:
        raise CourseError(f"{where}: {sanitized(str(why))}") from None


def _words(submitted: Submitted) -> list[str]:
    """What may stand for a submission, each once: identifiers, names, and its name in the class."""
    people = (submitted.student, *submitted.student.members)
    words = [folded(word) for who in people for word in who.identifiers]
    words += [form for who in people for form in sorted(name_forms(who.name))]
    return list(dict.fromkeys([*words, folded(Path(submitted.key).stem), folded(submitted.key)]))
