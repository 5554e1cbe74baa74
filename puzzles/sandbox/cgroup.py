"""A cgroup for each server: the kernel limits the memory and the tasks of all its processes together.

A group is made only in a part of the tree that was handed over to this user, and never so that a limit of the grader's
own group would no longer hold. See cgroups(7), and https://systemd.io/CGROUP_DELEGATION.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from .limits import MIB, Limits

PREFIX = "puzzles-"
"""Groups are called this, then the id of the grader's process, then something unique."""

HANDED_OVER = "puzzles"
"""Name of a group that root may divide although no marks say so: somebody has made it for this program."""

MARKS = ("user.delegate", "trusted.delegate")
"""Extended attributes that systemd sets on a group that it hands over with everything below."""

ROOM_MEMORY = 256 * MIB
"""For the server, its supervisor and the files in its folder."""

ROOM_TASKS = 1000
"""For the server, its supervisor, bubblewrap, and a process for each device. Only a net: see `worker.task_limit`."""


class CgroupFolder(NamedTuple):
    """Where groups with a controller, "memory" or "pids", can be made."""

    controller: str
    folder: str = ""
    version: int = 0
    unavailable_because: str = ""


class Group(NamedTuple):
    """The group of one server, one folder for each hierarchy; none where nothing can be had."""

    folders: tuple[str, ...] = ()

    def enter(self, command: list[str]) -> list[str]:
        """The command, which enters the group before it starts."""
        if not self.folders:
            return command
        steps = [f"echo 0 >{shlex.quote(folder)}/cgroup.procs" for folder in self.folders]
        return ["/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh", *command]

    def add(self, process: int) -> None:
        """Moves a process into the group, with all that it will start: before it has started anything."""
        for folder in self.folders:
            with suppress(OSError):
                Path(folder, "cgroup.procs").write_text(str(process))

    def remove(self) -> None:
        """Removes the group if its last process has ended. Otherwise, a later grader does."""
        for folder in self.folders:
            with suppress(OSError):
                os.rmdir(folder)


def make(limits: Limits, places: Sequence[CgroupFolder] | None = None) -> Group:
    """A new group with the limits of a run and room for the server; leftovers of ended graders are removed."""
    here = [place for place in (places if places is not None else find()) if place.folder]
    name = f"{PREFIX}{os.getpid()}-{uuid4().hex}"
    made = []
    for folder in dict.fromkeys(place.folder for place in here):
        with suppress(OSError):  # it has gone, or is full
            _remove_leftovers(folder)
            os.mkdir(os.path.join(folder, name))
            made.append(os.path.join(folder, name))
    for place in here:
        for file, value in _settings(place, limits):
            with suppress(OSError):  # a kernel that does not count swap, or a parent with less
                Path(place.folder, name, file).write_text(str(value))
    return Group(tuple(made))


def _settings(place: CgroupFolder, limits: Limits) -> list[tuple[str, int]]:
    if place.controller == "pids":
        return [("pids.max", limits.processes + ROOM_TASKS)]
    memory = limits.memory + ROOM_MEMORY
    if place.version == 2:
        return [("memory.max", memory), ("memory.swap.max", 0)]
    return [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]


def _remove_leftovers(folder: str) -> None:
    """Removes groups of graders that have ended; those with processes in them stay."""
    for name in os.listdir(folder):
        process = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and process.isdigit() and not os.path.exists(f"/proc/{process}"):
            with suppress(OSError):
                os.rmdir(os.path.join(folder, name))


# --- Where groups can be made ---


@cache
def find(proc: str = "/proc/self") -> tuple[CgroupFolder, ...]:
    """Where groups of each controller can be made, according to the files in `proc`."""
    if sys.platform != "linux":
        return tuple(CgroupFolder(name, unavailable_because="not on this system") for name in ("memory", "pids"))
    own = dict(_own_groups(proc))
    return tuple(_place(name, own) for name in ("memory", "pids"))


def _own_groups(proc: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """By controller, "" for version 2: where its hierarchy is mounted, and the folder of this process' group."""
    try:
        groups = Path(proc, "cgroup").read_text().splitlines()
        mounts = Path(proc, "mountinfo").read_text().splitlines()
    except OSError:  # no procfs
        return
    paths = {name: path for _, names, path in (row.split(":", 2) for row in groups) for name in names.split(",")}
    for row in mounts:
        where, _, what = row.partition(" - ")
        root, mount = where.split()[3:5]
        kind, _, options = what.split(" ", 2)
        for name in {"cgroup": options.split(","), "cgroup2": [""]}.get(kind, []):
            if name in paths and (inner := _below(paths[name], root)) is not None:
                yield name, (mount, os.path.normpath(f"{mount}/{inner}"))


def _below(path: str, root: str) -> str | None:
    """A path relative to a folder; None if it is outside, as in a container that shows a part of the tree."""
    inner = os.path.relpath(path, root)
    return None if inner.split("/")[0] == ".." else inner


def _place(controller: str, own: dict[str, tuple[str, str]]) -> CgroupFolder:
    version = 1 if controller in own else 2
    mount, group = own.get(controller) or own.get("", ("", ""))
    folder = group if version == 1 else _sharing(controller, mount, group)
    if not folder:
        unavailable_because = f"{group or 'this kernel'} has no {controller} to share out"
    elif folder != group and controller == "memory" and _read(f"{group}/memory.max").strip() not in ("", "max"):
        unavailable_because = f"{group} has a limit of its own, for all runs together"
    elif not _is_handed_over(folder, mount):
        unavailable_because = f"another program or user manages {folder}"
    elif not (os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)):
        unavailable_because = f"{folder} cannot be changed"
    else:
        return CgroupFolder(controller, folder, version)
    return CgroupFolder(controller, unavailable_because=unavailable_because)


def _sharing(controller: str, mount: str, group: str) -> str:
    """The group of version 2 that shares a controller out: our own, or the one above; "" if neither does. A group with
    processes in it cannot, unless it is the root."""
    candidates = [group, os.path.dirname(group)] if group not in ("", mount) else [group]
    return next((at for at in candidates if controller in _read(f"{at}/cgroup.subtree_control").split()), "")


def _is_handed_over(folder: str, mount: str) -> bool:
    """True if this user may divide a group. For root, who may write to all: nothing else manages it."""
    if os.getuid() != 0:
        return os.path.exists(folder) and os.stat(folder).st_uid == os.getuid()
    if folder == mount:
        return True
    within = [at for at in (Path(folder), *Path(folder).parents) if at != Path(mount) and at.is_relative_to(mount)]
    return any(at.name == HANDED_OVER or _is_marked(at) for at in within)


def _is_marked(folder: Path) -> bool:
    for mark in MARKS:
        with suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return False


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""
