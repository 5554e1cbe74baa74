"""Starts the devices: children of the worker, forked before it has read the trial, each with one channel to it."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from puzzles.sandbox.worker import landlock, seccomp

from .device_channel import DeviceChannel

CHANNEL = 3
"""The only file descriptor of a device besides the usual three."""

WRITABLE = ("/dev/null", "/dev/zero", "/dev/full")


class DeviceEnd(NamedTuple):
    """The judge's end of a device: its channel, and the pipe that it prints to."""

    channel: DeviceChannel
    printed: int


def fork_devices(
    size: int, readable: Sequence[Sequence[str]], work: Callable[[int, DeviceChannel], NoReturn]
) -> list[DeviceEnd]:
    """Starts devices 0 to `size` - 1; `work` runs in each. They share nothing with each other that can be written to:
    no file, no descriptor, no memory. `readable` is what the worker may list and read."""
    sys.stdout.flush()
    files = _visible_files(readable)
    ends: list[DeviceEnd] = []
    for device in range(size):
        ours, theirs = socket.socketpair()
        printed, prints = os.pipe()
        if os.fork() == 0:
            _become_device(device, theirs.fileno(), prints, files, work)
        theirs.close()
        os.close(prints)
        os.set_blocking(printed, False)
        ends.append(DeviceEnd(DeviceChannel(ours.detach()), printed))
    if files >= 0:
        os.close(files)
    return ends


def _become_device(
    device: int, channel: int, prints: int, files: int, work: Callable[[int, DeviceChannel], NoReturn]
) -> NoReturn:
    import resource  # here, with fcntl: a system that cannot fork has neither
    from fcntl import F_DUPFD, fcntl

    try:
        channel, prints = [fcntl(fd, F_DUPFD, CHANNEL + 1) for fd in (channel, prints)]
        for fd in (1, 2):
            os.dup2(prints, fd)
        null = os.open(os.devnull, os.O_RDONLY)  # its own: an open file has a state, which would be shared
        os.dup2(null, 0)
        os.dup2(channel, CHANNEL)
        landlock.restrict_to(files)  # while that descriptor is there, too: nothing is left to write to
        sys.stdin.close()  # while its descriptor is there: else Python 3.13 reports it when the file is freed
        os.closerange(CHANNEL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if files >= 0:
            seccomp.restrict_device()
        work(device, DeviceChannel(CHANNEL))
    except BaseException as why:
        print(f"the device ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _visible_files(readable: Sequence[Sequence[str]]) -> int:
    """The ruleset of all devices: what the worker may read, without /proc, where the others' figures could be read."""
    if not readable:
        return -1
    to_list, to_read = readable
    below_root = [f"/{name}" for name in os.listdir("/")] if "/" in to_read else []
    visible = [path for path in (*to_read, *below_root) if path != "/" and not path.startswith("/proc")]
    return landlock.ruleset((*to_list, "/") if below_root else to_list, visible, WRITABLE)
