"""Gives a test session and its processes a home directory of their own: they never touch a user's files."""

import os
import site
from pathlib import Path

FOLDERS = """
HOME USERPROFILE XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME
HYPOTHESIS_STORAGE_DIRECTORY IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR MPLCONFIGDIR
""".split()
"""Variables by which programs find a user's files."""

REMOVED = "JUPYTER_CONFIG_PATH JUPYTER_PATH PYTHONSTARTUP TRAINING_PUZZLES_HOME".split()


def move_into(home: Path) -> None:
    """Sets the variables to folders in this one. Packages that were installed for the user only are found as before."""
    os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
    for name in FOLDERS:
        folder = home / name.lower()
        folder.mkdir(mode=0o700)
        os.environ[name] = str(folder)
    for name in REMOVED:
        os.environ.pop(name, None)
