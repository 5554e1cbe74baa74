"""Two hosts on this machine: namespaces with a network, a name and shared memory of their own, joined by a link.

They exist in a namespace of processes too: the kernel removes all of it when the first process ends, even if a test is
killed.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_suffix(".sh")
NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def command_on_node1(folder: Path, *words: str) -> list[str]:
    """The command that starts the hosts, and runs `words` on the first of them."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, *NAMESPACES, "bash", str(SCRIPT), str(folder), *words]


def two_hosts_or_skip(folder: Path) -> None:
    """Skips a test where this machine does not allow two hosts."""
    missing = [program for program in ("unshare", "nsenter", "ip", "hostname", "bash") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, from util-linux, iproute2 and hostname")
    folder.mkdir()
    tried = subprocess.run(command_on_node1(folder, "true"), capture_output=True, text=True, timeout=30)
    if tried.returncode:
        pytest.skip(f"this machine allows no namespaces of networks: {tried.stderr.strip()[-200:]}")
