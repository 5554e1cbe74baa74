"""Options of bubblewrap: the view and the rights of a sandboxed process. `tiers` decides when bubblewrap is used.

Prior art: Flatpak starts applications with bubblewrap in the same way.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .limits import Limits
from .visible_files import (
    IMPORT_PACKAGE,
    INSTALL_ROOT,
    READABLE_PACKAGES,
    SITE_PACKAGES,
    SYSTEM_FOLDERS,
    covered_folders,
)

SERVER_FOLDER = "/submission"
"""The server's folder in the sandbox, limited in size. Runs write to a folder in it, and nowhere else."""

PROBE_SECONDS = 10.0

KEPT_CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER")
"""Capabilities that the server keeps when root grades: with them it gives each run a user that owns nothing."""


@cache
def bubblewrap() -> str:
    """The command's path: sandboxes are started with another PATH and in another folder than ours. Empty if there is
    none."""
    found = shutil.which("bwrap")
    return os.path.abspath(found) if found else ""


def bubblewrap_command(limits: Limits, environment: Mapping[str, str]) -> list[str]:
    """The start of a command: bubblewrap with its options. The sandboxed program and its arguments follow."""
    return [*_namespaces(environment), *_mounts(limits)]


def _namespaces(environment: Mapping[str, str]) -> list[str]:
    """Options of bubblewrap on processes, network, users, capabilities and variables."""
    words = [bubblewrap(), "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    if os.getuid() == 0:
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--cap-drop", "ALL"]
        for capability in KEPT_CAPABILITIES:
            words += ["--cap-add", f"CAP_{capability}"]
    else:
        words += ["--unshare-all", *_without_nested_users()]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return words


@cache
def _without_nested_users() -> list[str]:
    """Options that deny further user namespaces, since bubblewrap 0.8 and where the system allows it. Elsewhere the
    system call filter denies them."""
    options = ["--unshare-user", "--disable-userns"]
    probe = [bubblewrap(), "--unshare-all", *options, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return options if done.returncode == 0 else []


def _mounts(limits: Limits) -> list[str]:
    """Options of bubblewrap on files: visible folders read-only, hidden ones covered by empty ones."""
    words = []
    parents = {parent for at in (sys.base_prefix, SITE_PACKAGES, INSTALL_ROOT / "lib") for parent in Path(at).parents}
    for parent in sorted(parents)[1:]:
        words += ["--perms", "0755", "--dir", str(parent)]  # or the run's user could not pass through them
    for folder in (*SYSTEM_FOLDERS, sys.base_prefix, SITE_PACKAGES):
        words += ["--ro-bind-try", folder, folder]
    for package in READABLE_PACKAGES:
        words += ["--ro-bind", str(INSTALL_ROOT / package), str(INSTALL_ROOT / package)]
    words += ["--ro-bind", str(IMPORT_PACKAGE / "__init__.py"), str(IMPORT_PACKAGE / "__init__.py")]
    for hidden in covered_folders():
        words += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.files), "--tmpfs", SERVER_FOLDER]
    return [*words, "--chdir", SERVER_FOLDER, "--remount-ro", "/dev", "--remount-ro", "/"]
