"""Numpy for the browser: the wheel that Pyodide's own lock file names, with the digest that it states."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from .npm import SiteError

SECONDS = 20
"""That Pyodide's release is waited for."""

RELEASE = re.compile(r"`(https://[^`$]+)\$\{\w+\}/full/`")
"""Where the scripts of Pyodide have the address of its release, without the version."""


class LockedWheel(NamedTuple):
    """The entry of numpy in the lock file of Pyodide, in its folder below `modules`."""

    name: str
    digest: str
    entry: dict[str, object]
    pyodide: Path

    @classmethod
    def of(cls, modules: Path) -> "LockedWheel":
        pyodide = modules / "pyodide"
        entry = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]["numpy"]
        return cls(entry["file_name"], entry["sha256"], entry, pyodide)

    def given(self, folder: Path) -> Path:
        """The wheel in a folder."""
        path = folder / self.name
        if not folder.is_dir():
            raise SiteError(f"NUMPY_WHEEL names a folder, and {folder} is none; put {self.name} into one")
        if not path.is_file():
            others = ", ".join(sorted(one.name for one in folder.glob("numpy*.whl")))
            found = f"there is {others}, which this Pyodide does not load" if others else "it is in Pyodide's release"
            raise SiteError(f"NUMPY_WHEEL: {folder} has no {self.name}; {found}")
        self.require_genuine(path.read_bytes(), str(path))
        return path

    def released(self, kept: Path) -> Path | None:
        """The wheel from Pyodide's release, in the folder `kept` from then on; None where it cannot be reached."""
        path = kept / self.name
        if not path.is_file():
            try:
                with urlopen(self.address(), timeout=SECONDS) as answer:
                    data = answer.read()
            except OSError:
                return None
            self.require_genuine(data, self.address())
            path.write_bytes(data)
        self.require_genuine(path.read_bytes(), str(path))
        return path

    def address(self) -> str:
        """Where Pyodide itself would load the wheel from."""
        found = RELEASE.search((self.pyodide / "pyodide.mjs").read_text(encoding="utf-8"))
        if found is None:
            raise SiteError("pyodide.mjs does not say where its release is; name a folder with NUMPY_WHEEL=FOLDER")
        version = json.loads((self.pyodide / "package.json").read_text(encoding="utf-8"))["version"]
        return f"{found[1]}{version}/full/{self.name}"

    def require_genuine(self, data: bytes, where: str) -> None:
        """Refuses a file whose digest is another one."""
        found = sha256(data).hexdigest()
        if found != self.digest:
            raise SiteError(
                f"{where} is not the wheel that Pyodide was built with, or is damaged: its SHA-256 is {found}, and the "
                f"lock file of Pyodide has {self.digest}"
            )
