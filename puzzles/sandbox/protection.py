"""Protections of this machine from a run, as facts for `grade` and `doctor`.

`docs/security.md` says the same of every tier and system, and how each line is tested.
"""

import os
from typing import NamedTuple

from .tiers import IsolationTier
from .worker import landlock, seccomp


class Protection(NamedTuple):
    """The means that a tier has on this machine."""

    tier: IsolationTier
    landlock: int
    """Version of the kernel's interface; 0 if there is none."""
    seccomp: bool
    other_user: bool
    """True if runs are under a user that owns nothing."""

    @property
    def guards_files(self) -> bool:
        """True if a run cannot read and change whatever the user can."""
        return self.tier.is_sandbox or bool(self.landlock) or self.other_user

    def line(self) -> str:
        """How runs are sandboxed, in one line of a terminal."""
        return (
            f"Sandboxed without bubblewrap ({self.tier.no_bubblewrap_because.partition(';')[0]}); see 'puzzles doctor'."
        )

    def summary(self) -> str:
        """How runs are sandboxed, and what they can still do to others."""
        means = [name for name, here in (("Landlock", self.landlock), ("seccomp", self.seccomp)) if here]
        means += ["another user"] if self.other_user else []
        how = f"with {_listed(means)} instead of" if means else "without"
        what = "A run can still " + "; ".join(self.limitations()[:2])
        return f"Sandboxed {how} bubblewrap ({self.tier.no_bubblewrap_because}). {what}. See 'puzzles doctor'."

    def protections(self) -> list[str]:
        """What a run cannot do."""
        if self.tier.is_sandbox:
            found = ["read other files than Python's, the game's and the system's", "write outside of its own folder"]
            found += ["see other processes or the network"]
        elif self.landlock:
            found = ["read other files than Python's, the game's and the system's", "write outside of its own folder"]
        elif self.other_user:
            found = ["read or change files that are not open to everybody"]
        else:
            found = ["read solutions, tests and hidden trials, as long as it uses Python's own functions"]
        if self.seccomp:
            found += ["open sockets", "leave messages for later runs", "make namespaces", "signal other processes"]
        return found

    def limitations(self) -> list[str]:
        """What a run can do that it should not."""
        if self.tier.is_sandbox:
            return [] if self.seccomp else ["leave messages for later runs of the same grader"]
        found = []
        if not self.guards_files:
            found.append("read and change what you can")
        elif not self.landlock:
            found.append("read what everybody may read, and write to shared folders such as /tmp")
        if not self.seccomp:
            found.append("use the network")
        found += ["see which files and processes exist", "fill the disk with many files while it runs"]
        if not self.tier.forks:
            found.append("let the devices of a class share data that no meter counts, and change the meters")
        return found


def protection(tier: IsolationTier) -> Protection:
    if not tier.forks:
        return Protection(tier, 0, False, False)
    return Protection(tier, landlock.version(), seccomp.is_available(), os.getuid() == 0)


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
