"""The zip file of an autograder: a setup script, a run script, wheels, and folders of own puzzles."""

import base64
import csv
import hashlib
import io
import json
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import Parser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import tomlkit

from lib.errors import PACKAGE
from puzzles.custom import COURSE_FILE
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.teaching.course_file import Course


class WheelError(Exception):
    """There is no wheel; the message says how to get one."""


def is_our_wheel(path: Path) -> bool:
    """True for a wheel of the game, by its name and format."""
    return path.name.startswith("training_puzzles-") and path.suffix == ".whl" and zipfile.is_zipfile(path)


def our_wheel(folder: Path) -> Path:
    """Writes the wheel of the game into a folder."""
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        installed = None
    if installed is not None and not _is_editable(installed):
        return packed_again(installed, folder)
    if not (INSTALL_ROOT / "pyproject.toml").is_file():
        raise WheelError("this game is neither installed nor in a clone; name its wheel with --wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.resolve())]
    done = subprocess.run(command, cwd=INSTALL_ROOT, capture_output=True, text=True, check=False)
    built = sorted(folder.glob("training_puzzles-*.whl"))
    if done.returncode or not built:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise WheelError(f"cannot build the wheel ({last}); type 'pip install hatchling', or name a wheel with --wheel")
    return built[-1]


def packed_again(installed: Distribution, folder: Path) -> Path:
    """Rebuilds the wheel of an installed package from its installed files."""
    name = installed.metadata["Name"].replace("-", "_")
    described = Parser().parsestr(installed.read_text("WHEEL") or "")
    tags = [tag.split("-") for tag in described.get_all("Tag", [])]
    if not tags or installed.files is None:
        raise WheelError(f"{name} was not installed from a wheel; name its wheel with --wheel")
    info = next(file.parts[0] for file in installed.files if file.parts[0].endswith(".dist-info"))
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags))
    made = folder / f"{name}-{installed.version}-{tag}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(installed.files, key=str):
            if _belongs(file.parts):
                data = Path(str(file.locate())).read_bytes()
                add(archive, file.as_posix(), data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.writerow((file.as_posix(), f"sha256={digest}", len(data)))
        rows.writerow((f"{info}/RECORD", "", ""))
        add(archive, f"{info}/RECORD", record.getvalue().encode())
    return made


def _belongs(parts: tuple[str, ...]) -> bool:
    """False for scripts outside the packages, bytecode, and files that the installer wrote."""
    written = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    if ".." in parts or "__pycache__" in parts or Path(*parts).is_absolute():
        return False
    return not (parts[0].endswith(".dist-info") and parts[-1] in written)


def _is_editable(installed: Distribution) -> bool:
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Adds an entry with a fixed time."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # so that equal files make equal archives
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


@dataclass(frozen=True)
class Autograder:
    """An autograder: the points of its puzzles, the rules of its course, further `options` of `puzzles class`, folders
    of own puzzles, the game's wheel, and perhaps the wheels of all its dependencies."""

    points: Mapping[str, float]
    course: Course
    options: Sequence[str]
    folders: Sequence[Path]
    wheel: Path
    wheels: Sequence[Path] = ()
    packages: Sequence[str] = ()
    """Further packages that submissions may import."""

    def write(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            add(archive, "setup.sh", self._script("setup.sh"), 0o755)
            add(archive, "run_autograder", self._script("run_autograder"), 0o755)
            add(archive, f"course/{COURSE_FILE}", self.rules().encode())
            for wheel in (self.wheel, *self.wheels):
                add(archive, f"wheels/{wheel.name}", wheel.read_bytes())
            for folder in self.folders:
                for file in sorted(folder.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        add(archive, f"puzzles/{folder.name}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def rules(self) -> str:
        """The course.toml of one student; the service knows who that is and what is late."""
        shares = dict(self.course.shares)
        puzzles = [f"../puzzles/{folder.name}" for folder in self.folders]
        return tomlkit.dumps(
            {
                "one_student": True,
                "strict": self.course.strict,
                **shares,
                "puzzles": puzzles,
                "points": dict(self.points),
            }
        )

    def _script(self, name: str) -> bytes:
        text = (files("puzzles.teaching") / "scripts" / name).read_text(encoding="utf-8")
        text = text.replace("OFFLINE=no", f"OFFLINE={'yes' if self.wheels else 'no'}")
        text = text.replace("PACKAGES=()", f"PACKAGES=({shlex.join(self.packages)})")
        return text.replace("OPTIONS=()", f"OPTIONS=({shlex.join(self.options)})").encode()
