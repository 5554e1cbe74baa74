"""Protections of this machine from a run, as facts for `grade` and `doctor`.

`docs/security.md` says the same of every system, and how each line is tested.
"""

import os
from typing import NamedTuple

from .start import can_fork
from .worker import landlock, seccomp


class Protection(NamedTuple):
    """The means that there are on this machine."""

    landlock: int
    """Version of the kernel's interface; 0 if there is none."""
    seccomp: bool
    other_user: bool
    """True if runs are under a user that owns nothing."""

    @property
    def guards_files(self) -> bool:
        """True if a run cannot read and change whatever the user can."""
        return bool(self.landlock) or self.other_user

    def warning(self) -> str:
        """A sentence on what is missing; empty if nothing is."""
        if self.landlock and self.seccomp:
            return ""
        return f"Without a full sandbox, a run can {' and '.join(self.limitations()[:2])}. See 'puzzles doctor'."

    def protections(self) -> list[str]:
        """What a run cannot do."""
        if self.landlock:
            cannot = ["read other files than Python's, the game's and the system's", "write outside of its own folder"]
        elif self.other_user:
            cannot = ["read or change files that are not open to everybody"]
        else:
            cannot = ["read solutions, tests and hidden trials, as long as it uses Python's own functions"]
        if self.seccomp:
            cannot += ["open sockets", "leave messages for later runs", "make namespaces", "signal other processes"]
            cannot += ["start threads"]
        return cannot

    def limitations(self) -> list[str]:
        """What a run can do that it should not."""
        can = []
        if not self.guards_files:
            can.append("read and change what you can")
        elif not self.landlock:
            can.append("read what everybody may read, and write to shared folders such as /tmp")
        if not self.seccomp:
            can.append("use the network")
        return [*can, "see which files and processes exist"]


def protection() -> Protection:
    if not can_fork():
        return Protection(0, False, False)
    return Protection(landlock.version(), seccomp.is_available(), os.getuid() == 0)
