"""The zip file of an autograder: a setup script, a run script, wheels, and folders of own puzzles."""

import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from .wheels import add


@dataclass(frozen=True)
class Autograder:
    """What an autograder grades and with what: `options` of `puzzles grade`, folders of own puzzles, the wheel of the
    game, and further wheels, if all that it depends on is among them."""

    options: Sequence[str]
    folders: Sequence[Path]
    wheel: Path
    wheels: Sequence[Path] = ()
    packages: Sequence[str] = ()
    """Other packages that submissions may import."""

    def write(self, path: Path) -> None:
        """Writes the file.

        Raises:
            OSError: it cannot be written, or a file that belongs in it cannot be read.
        """
        with zipfile.ZipFile(path, "w") as archive:
            add(archive, "setup.sh", self._script("setup.sh"), 0o755)
            add(archive, "run_autograder", self._script("run_autograder"), 0o755)
            for wheel in (self.wheel, *self.wheels):
                add(archive, f"wheels/{wheel.name}", wheel.read_bytes())
            for folder in self.folders:
                for file in sorted(folder.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        add(archive, f"puzzles/{folder.name}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def _script(self, name: str) -> bytes:
        words = [*self.options]
        text = (files("puzzles.gradescope") / "scripts" / name).read_text(encoding="utf-8")
        text = text.replace("OFFLINE=no", f"OFFLINE={'yes' if self.wheels else 'no'}")
        text = text.replace("PACKAGES=()", f"PACKAGES=({shlex.join(self.packages)})")
        own = "".join(f' --puzzles "$root/source/puzzles/"{shlex.quote(folder.name)}' for folder in self.folders)
        return text.replace("OPTIONS=()", f"OPTIONS=({shlex.join(words)}{own})").encode()
