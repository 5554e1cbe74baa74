"""Recognizes how learning platforms name the files and folders of an export, and who handed each in.

Sources: Moodle's mod/assign/locallib.php (`download_submissions`), Canvas's "Download Submissions", Gradescope's
"Export Submissions", nbgrader's folder of submissions, and `gh classroom clone student-repos`.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from puzzles.grading.verdict import Student


class Origin(NamedTuple):
    """The owner of an entry of an export. Entries with one `key` are one submission; reports call it `path`."""

    key: str
    student: Student
    path: str


MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.DOTALL)
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_(?P<submission>\d{2,})_(?P<file>.+)", re.DOTALL)
METADATA = "submission_metadata.yml"
SUBMITTED, TIMESTAMP = "submitted", "timestamp.txt"
CLONES = "-submissions"

Export = Callable[[str, Sequence[str]], dict[str, Origin] | None]
"""Reads the names of a folder's entries: the owner of each, or None if the folder is not an export of this kind."""


def origins(folder: str, names: Sequence[str]) -> dict[str, Origin]:
    """The owner of each entry of a folder. In a folder that is not an export, each entry is a submission."""
    found = next((found for export in EXPORTS if (found := export(folder, names)) is not None), {})
    return {name: found.get(name) or _plain(folder, name) for name in names}


def is_export(folder: str, names: Sequence[str]) -> bool:
    """True if the entries of a folder are named as a platform names them."""
    return any(export(folder, names) is not None for export in EXPORTS)


def is_named_file(name: str) -> bool:
    """True for a file as Moodle or Canvas name it."""
    return bool(MOODLE.fullmatch(name) or CANVAS.fullmatch(name))


def _plain(folder: str, name: str) -> Origin:
    path = os.path.join(folder, name)
    stem = name if os.path.isdir(path) else Path(name).stem
    return Origin(name, Student(id=stem, submitted=_timestamp(path)), path)


def _moodle(folder: str, names: Sequence[str]) -> dict[str, Origin] | None:
    return {name: _named(folder, match) for name in names if (match := MOODLE.fullmatch(name))} or None


def _canvas(folder: str, names: Sequence[str]) -> dict[str, Origin] | None:
    """All entries must be named so. A single such name may be a coincidence."""
    found = {name: _named(folder, match) for name in names if (match := CANVAS.fullmatch(name))}
    return found if names and len(found) == len(names) else None


def _named(folder: str, match: re.Match[str]) -> Origin:
    who = f"{match['name']}_{match['id']}"
    if match.re is MOODLE:  # which numbers the participants of one assignment
        student = Student(match["name"], others=(f"Participant {match['id']}",))
    else:
        student = Student(match["name"], match["id"])
    return Origin(who, student, os.path.join(folder, who))


def _gradescope(folder: str, names: Sequence[str]) -> dict[str, Origin] | None:
    try:
        text = Path(folder, METADATA).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    known = _submitters(text)
    return {name: Origin(name, known[name], os.path.join(folder, name)) for name in names if name in known}


def _submitters(text: str) -> dict[str, Student]:
    """The submitters of each submission, from the lines of Gradescope's YAML that say so."""
    found: dict[str, Student] = {}
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        head, _, rest = block.partition(":\n")
        part = rest.partition("  :submitters:")[2]
        people = []
        for one in re.split(r"^  - ", part, flags=re.MULTILINE)[1:]:
            said = {key: _scalar(value) for key, value in re.findall(r"^ *:(name|sid|email):(.*)$", one, re.MULTILINE)}
            people.append(Student(said.get("name", ""), said.get("sid", ""), said.get("email", "")))
        if not people:
            continue
        made = re.search(r"^  :created_at:(.*)$", rest, re.MULTILINE)
        when = moment(_scalar(made[1])) if made else None
        group = Student(" and ".join(one.name or one.email for one in people), members=tuple(people))
        found[head] = replace(group if len(people) > 1 else people[0], submitted=when)
    return found


def _scalar(text: str) -> str:
    text = text.strip()
    if text in ("", "null", "~"):
        return ""
    if text[0] == '"' == text[-1]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text[1:-1].replace("''", "'") if text[0] == "'" == text[-1] else text


def _classroom(folder: str, names: Sequence[str]) -> dict[str, Origin] | None:
    here = os.path.basename(os.path.abspath(folder))
    if not here.endswith(CLONES):
        return None
    head = here.removesuffix(CLONES) + "-"
    mine = [name for name in names if name.startswith(head) and name != head]
    return {
        name: Origin(name, Student(id=name.removeprefix(head)), os.path.join(folder, name)) for name in mine
    } or None


def _timestamp(path: str) -> float | None:
    """The latest time in the files that nbgrader puts beside each assignment."""
    try:
        texts = [file.read_text(encoding="utf-8") for file in sorted(Path(path).glob(f"*/{TIMESTAMP}"))]
    except (OSError, ValueError):
        return None
    return max(filter(None, map(moment, texts)), default=None)


def moment(text: str) -> float | None:
    """A date and time as platforms write it, in seconds since 1970; else None. Without a zone it is local."""
    words = re.sub(r" ?UTC$", "+00:00", text.strip()).replace(" +", "+").replace(" -", "-")
    try:
        return datetime.fromisoformat(words).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


EXPORTS: tuple[Export, ...] = (_gradescope, _moodle, _classroom, _canvas)
