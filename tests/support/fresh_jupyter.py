"""Runs the solved notebooks as Colab would: in an environment of their own that has a kernel and nothing of ours.

Their first cell has to install the wheel that is next to them. `python -m tests.support.fresh_jupyter FOLDER`, where
FOLDER is what `make notebooks` fills; it needs the network, and so it is not part of the suite.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from puzzles.catalog.schedule import PUZZLES


def main(made: Path) -> None:
    with TemporaryDirectory() as folder:
        work = Path(folder)
        python = environment(work / "venv")
        for path in (*(made / "solved").glob("*.ipynb"), *made.glob("*.whl")):
            shutil.copy(path, work)
        for path in sorted(work.glob("*.ipynb")):
            text = executed(path, python)
            unsolved = [
                slug for slug in PUZZLES if f'play(\\"{slug}\\", {slug})' in text and f"{slug}: Solved!" not in text
            ]
            if unsolved:
                sys.exit(f"{path.name}: not solved: {', '.join(unsolved)}")
            print(f"{path.name}: ran from top to bottom")


def environment(folder: Path) -> Path:
    """The Python of a fresh environment with Jupyter's kernel."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "ipykernel"], check=True)
    return python


def executed(path: Path, python: Path) -> str:
    """The notebook as text after it ran; an exception in a cell ends it."""

    class ThisPython(KernelSpecManager):  # type: ignore[misc]  # without types
        def get_kernel_spec(self, name: str) -> KernelSpec:
            return KernelSpec(
                argv=[str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"],
                language="python",
            )

    class Manager(AsyncKernelManager):  # type: ignore[misc]  # without types
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "kernel_spec_manager": ThisPython()})

    notebook = nbformat.read(path, as_version=4)
    options = {"resources": {"metadata": {"path": str(path.parent)}}, "kernel_manager_class": Manager}
    NotebookClient(notebook, timeout=300, **options).execute()
    return str(nbformat.writes(notebook))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
