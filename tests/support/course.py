"""Makes a class whose results are known beforehand: who is on the roster, what each has handed in, and its points."""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from puzzles.custom import COURSE_FILE
from puzzles.judge.starters import starter_file
from puzzles.judge.verdict import Verdict
from puzzles.tracks import find
from tests.support.commands import notebook, solution
from tests.support.fake_grading import real_verdict, stating

POINTS = {"basic": 5.0, "ddp": 10.0}
PARTIAL, SHOWN_SIZE = 0.5, 0.5
SHARES = {
    "best": 1.0,
    "passed": 1.0,
    "over_target": PARTIAL,
    "shown_size": SHOWN_SIZE,
    "failed": 0.0,
    "not_attempted": 0.0,
}
DUE = datetime(2026, 11, 20, 18, tzinfo=UTC).timestamp()
DAY = 86_400.0
NAMES = (
    "Ann Lee",
    "Zoë Müller",
    "李 小龙",
    "Łukasz Żak",
    "=cmd() Doe",
    "O'Neil <b>Pat</b>",
    "علي حسن",
    "Anna-Lena de la Cruz",
)

Files = dict[str, str | bytes]


def stated(**statuses: str) -> str:
    """A file that states these verdicts, which `stated_verdicts` reads instead of a run."""
    return stating(*(_verdict(slug, status) for slug, status in statuses.items()))


def _verdict(slug: str, status: str) -> Verdict:
    match status:
        case "best":
            return real_verdict(slug, stars=3)
        case "shown_size":
            return real_verdict(slug, shown_size_only=True)
        case "over_target":
            return real_verdict(slug, status, stars=1)
        case "failed":
            return real_verdict(slug, status, stars=0, reason="deadlock", message="rank 0 waits for rank 1")
        case "loop":
            return real_verdict(slug, "failed", stars=0, reason="timeout", message="it never ends")
    return real_verdict(slug, status)


def worked(**statuses: str) -> str:
    """A file whose solutions have these verdicts when they are run; `loop` never ends."""
    return "".join(WORKED[status](slug) for slug, status in statuses.items())


RECORDS = {"basic": "basic_batch_by_batch", "ddp": "ddp_sharded"}


def record(slug: str) -> str:
    return solution(f"records/{RECORDS[slug]}")


def over_target(slug: str) -> str:
    """`basic`, correct, with a peak over its target."""
    return solution(slug).replace("        del activations[layer], grad_activations[layer + 1]\n", "")


def shown_size_only(slug: str) -> str:
    """`basic` with the shown number of layers written out."""
    return solution(slug).replace("model.LAYERS", "2")


def wrong(slug: str) -> str:
    """A solution that updates with nothing."""
    return solution(slug).replace("model.update(layer, grad_weights[layer],", "model.update(layer, weights[layer],")


def loop(slug: str) -> str:
    head = "async def" if slug == "ddp" else "def"
    return f"{head} {slug}(model):\n    while True:\n        pass\n"


WORKED: dict[str, Callable[[str], str]] = {
    "best": record,
    "passed": solution,
    "over_target": over_target,
    "shown_size": shown_size_only,
    "failed": wrong,
    "loop": loop,
}


Writer = Callable[..., str]
"""`stated` or `worked`: makes a file of the verdicts that it is to have."""

KINDS: dict[str, tuple[Callable[[Writer], Files], dict[str, str]]] = {
    "right": (lambda of: {"hw.py": of(basic="passed", ddp="passed")}, {"basic": "passed", "ddp": "passed"}),
    "over": (lambda of: {"hw.py": of(basic="over_target", ddp="passed")}, {"basic": "over_target", "ddp": "passed"}),
    "wrong": (lambda of: {"hw.py": of(basic="failed", ddp="failed")}, {"basic": "failed", "ddp": "failed"}),
    "notebook": (
        lambda of: {"hw.ipynb": notebook(of(basic="passed"), of(ddp="passed"))},
        {"basic": "passed", "ddp": "passed"},
    ),
    "several": (
        lambda of: {
            "a.py": of(ddp="failed"), "b/ddp.py": of(ddp="passed"), "basic.py": of(basic="over_target"),
            "notes.txt": "mine",
        },
        {"basic": "over_target", "ddp": "passed"},
    ),
    "starter": (lambda of: {"hw.py": starter_file([find("basic"), find("ddp")], "hw.py")}, {}),
    "shown": (lambda of: {"hw.py": of(basic="shown_size")}, {"basic": "shown_size"}),
    "half": (lambda of: {"hw.py": of(ddp="passed")}, {"ddp": "passed"}),
    "pdf": (lambda of: {"report.pdf": b"%PDF-1.4"}, {}),
    "empty": (lambda of: {}, {}),
    "syntax": (
        lambda of: {"hw.py": of(basic="passed", ddp="passed") + "x = (\n"}, {"basic": "failed", "ddp": "failed"}
    ),
    "missing": (lambda of: {}, {}),
    "best": (lambda of: {"a.py": of(basic="best"), "b.py": of(ddp="best")}, {"basic": "best", "ddp": "best"}),
    "loop": (lambda of: {"hw.py": of(basic="loop", ddp="passed")}, {"basic": "failed", "ddp": "passed"}),
}  # fmt: skip
"""What a student hands in, and what becomes of each puzzle; one that is not named is not attempted."""


@dataclass(frozen=True)
class Known:
    """A student as the script knows them."""

    name: str
    id: str
    email: str
    section: str
    group: str
    kind: str
    statuses: dict[str, str]
    days_late: float

    @property
    def points(self) -> dict[str, float]:
        """By puzzle, before anything is taken off for lateness."""
        return {slug: POINTS[slug] * SHARES[self.statuses.get(slug, "not_attempted")] for slug in POINTS}


def students(number: int) -> list[Known]:
    """The students of a class; of each kind about as many, but fewer loops."""
    kinds = list(KINDS)
    found = []
    for i in range(number):
        kind = kinds[i % len(kinds)]
        if kind == "loop" and i >= 3 * len(kinds):
            kind = "right"
        name = f"{NAMES[i % len(NAMES)]} {i}" if i % 29 != 28 else f"{'Long ' * 31}Name {i:03}"
        late = (0.0, 0.0, 0.5, 2.0)[i % 4] if kind not in ("missing", "empty") else 0.0
        found.append(Known(name, f"s{i:04}", f"s{i:04}@uni.example", "AB"[i % 2], "", kind, KINDS[kind][1], late))
    return found


def with_groups(known: Sequence[Known], groups: int) -> list[Known]:
    """The class and some groups of two: one member has handed in `basic`, the other `ddp`."""
    found = [*known]
    for i in range(groups):
        for member, slug in enumerate(("basic", "ddp")):
            who = f"g{i:03}{'ab'[member]}"
            statuses = {"basic": "passed", "ddp": "passed"}
            found.append(
                Known(f"Member {who}", who, f"{who}@uni.example", "A", f"Team {i}", f"only {slug}", statuses, 0.0)
            )
    return found


def files_of(known: Known, of: Writer = stated) -> Files:
    if known.kind.startswith("only "):
        return {"hw.py": of(**{known.kind.removeprefix("only "): "passed"})}
    return KINDS[known.kind][0](of)


def write(folder: Path, known: Sequence[Known], of: Writer = stated) -> Path:
    """Writes the class below `folder`, as `class` and `roster.csv`; every third student with one file hands in that
    file alone. Returns the folder of the class."""
    here = folder / "class"
    here.mkdir(parents=True)
    for number, one in enumerate(known):
        if one.kind == "missing":
            continue
        for path in _written(here, one, files_of(one, of), is_bare=number % 3 == 0):
            os.utime(path, (DUE - 60 + one.days_late * DAY,) * 2)
    with (folder / "roster.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("Name", "ID", "E-Mail", "Section", "Group"))
        rows.writerows((one.name, one.id, one.email, one.section, one.group) for one in known)
    return here


def rules(folder: Path, text: str) -> Path:
    """Writes `course.toml` with this text; returns the folder, which `puzzles class` takes."""
    (folder / COURSE_FILE).write_text(text, encoding="utf-8")
    return folder


def _written(here: Path, one: Known, files: Files, is_bare: bool) -> Iterator[Path]:
    if is_bare and len(files) == 1 and one.kind != "pdf":
        ((name, content),) = files.items()
        files, home = {f"{one.id}{Path(name).suffix}": content}, here
    else:
        home = here / one.id
        home.mkdir()
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        yield path
