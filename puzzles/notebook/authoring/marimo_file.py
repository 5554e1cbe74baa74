"""Turns a notebook of Jupyter into a file of marimo, with marimo's own converter."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lib.extras import install_command

from .build import Book, MissingPackageError


def as_marimo(book: Book) -> Book:
    """The same notebook as a Python file that `marimo edit` opens."""
    if find_spec("marimo") is None:
        raise MissingPackageError(f"this needs marimo; install it with: {install_command('marimo')}")
    with TemporaryDirectory() as folder:
        source, made = Path(folder, book.file), Path(folder, book.file).with_suffix(".py")
        source.write_text(book.text, encoding="utf-8")
        command = [sys.executable, "-m", "marimo", "--quiet", "convert", str(source), "-o", str(made)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return Book(made.name, made.read_text(encoding="utf-8"))
