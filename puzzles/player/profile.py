"""`profile`: what the traces of a run say, with its text, its picture and its files; for notebooks and the command."""

import json
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib import PuzzleError
from lib.pipelines.torch_csv import write_table
from lib.profiles import Shares, Source, Study, read_rules, sources_of, study
from lib.profiles.studying import as_record
from puzzles.failure import require_ending, write_file
from puzzles.screens.profiles import text_of

ENDINGS = (".html", ".svg", ".png", ".pdf", ".csv", ".json", ".txt")
ORDERS = ("better", "measured")


@dataclass(frozen=True)
class ProfiledRun:
    """A profiled run. `study` has its figures: a `Study` of a pipeline, or the `Shares` of ranks. In a notebook it is
    its text and its picture."""

    study: Study | Shares
    paths: str = "traces/"

    @property
    def text(self) -> str:
        return text_of(self.study, self.paths)

    @property
    def record(self) -> dict[str, Any]:
        """All figures, as JSON has them."""
        return as_record(self.study)

    def picture(self, title: str = "", dark: bool = False) -> Any:
        """The measured run above its order replayed."""
        from puzzles.screens.profile_pictures import draw_profile

        return draw_profile(self._pipeline("a picture"), title, dark=dark)

    def csv(self, order: str = "better") -> str:
        """The "better" order, or the "measured" one, as PyTorch loads it."""
        if order not in ORDERS:
            raise PuzzleError(f"an order is one of {' and '.join(ORDERS)}; got {order!r:.40}")
        found = self._pipeline("an order")
        better = found.prospect.better
        if order == "measured":
            return write_table(found.chosen.step.table)
        if better is None:
            raise PuzzleError("no better order was found; take the order measured (--order measured)")
        return write_table(better.table)

    def save(self, path: str | Path, order: str = "better") -> None:
        """Writes a file; its ending says what."""
        import drawing

        ending = require_ending(path, ENDINGS)
        if ending in (".svg", ".png", ".pdf"):
            drawing.save(self.picture(), path)
            return
        made = {
            ".json": lambda: json.dumps(self.record, indent=1) + "\n",
            ".txt": lambda: f"{self.text}\n",
            ".csv": lambda: self.csv(order),
            ".html": self.page,
        }[ending]
        write_file(path, made())

    def page(self) -> str:
        """A web page of the run, which loads nothing."""
        from puzzles.screens.profile_pictures import profile_page

        return profile_page(self._pipeline("a page"))

    def _pipeline(self, what: str) -> Study:
        if isinstance(self.study, Shares):
            raise PuzzleError(f"these files have no pipeline, so there is not {what}; .json and .txt have their shares")
        return self.study

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from markupsafe import escape

        picture = ""
        with suppress(PuzzleError):  # ranks without a pipeline, or a pipeline too large to draw, are text only
            picture = self.picture().in_svg()
        return {"text/plain": self.text, "text/html": f"{picture}<pre>{escape(self.text)}</pre>"}


def profile(
    *paths: str | Path | Source,
    names: str | Path | None = None,
    ranks: Collection[int] | None = None,
    step: int | None = None,
) -> ProfiledRun:
    """Reads the traces of a run: a folder, or a file for each rank, as torch.profiler writes them. `names` is a TOML
    file for other annotations, `ranks` are those that are there if some are missing, and `step` is the one to show in
    full instead of the one of median length.

    Raises:
        PuzzleError: the files cannot be read, do not belong to one run, or name no cells.
    """
    found: list[Source] = []
    for path in paths:
        if not isinstance(path, Source):
            if not Path(path).exists():
                raise PuzzleError(f"there is no {path}; give the folder of a run, or a file for each rank")
            found += sources_of([Path(path)])
        else:
            found.append(path)
    rules = _rules(Path(names)) if names is not None else ()
    named = " ".join(shlex.quote(str(path)) for path in paths if not isinstance(path, Source))
    return ProfiledRun(study(found, rules, ranks, step), named or "traces/")


def _rules(path: Path) -> Sequence[Any]:
    try:
        return read_rules(path.read_text(encoding="utf-8-sig"), path.name)
    except (OSError, UnicodeDecodeError) as why:
        raise PuzzleError(f"{path} cannot be read: {why}") from None
