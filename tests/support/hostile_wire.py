"""Known ways to tell another device of a class something uncounted, as statements in the solution of DataParallel.

Each statement raises Told if it works. `on` says which device tells, and which one listens.
"""

from __future__ import annotations

from tests.support.hostile_hiding import HEAD

WORDS = f"""{HEAD}
import signal, time
from puzzles.sandbox.worker.seccomp import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)


class Told(BaseException):
    pass


def tells(found):
    if found:
        raise Told("device 0 has told its number")


def exists(path):
    try:
        return bool(os.stat(path))
    except OSError:
        return False


def passes(pair):
    try:
        return pair[0].sendmsg([b"x"], [(1, 1, (3).to_bytes(4, "little"))])
    except OSError:
        return False


def answers(number, *arguments):
    return LIBC.syscall(number, *[ctypes.c_long(value) for value in arguments]) >= 0


"""

ENDINGS = {
    "another_shape": "self.all_reduce(np.zeros(4711 if self.device_id == 0 else 1, np.float32))",
    "another_dtype": "self.all_reduce(np.zeros(1, np.float64 if self.device_id == 0 else np.float32))",
    "another_axis": "self.all_gather(np.zeros((4, 4), np.float32), axis=int(self.device_id == 0))",
    "another_buffer": "self.symmetric(4711 if self.device_id == 0 else 1)",
}
"""By name: calls that differ by a number of device 0. The message of the refusal names both."""

CLOCK = """\
if self.device_id == 0:
            self._port.meter.compute(4711000)
        self.barrier()
        tells(self._port.meter.clock >= 4711000 and self.device_id)"""

OUTSIDE = "outside of the buffer"

PLACES = {
    "before": (0, [4], -8, OUTSIDE),
    "behind": (0, [4], 64, OUTSIDE),
    "long_stride": (0, [4096], 0, OUTSIDE),
    "no_buffer": (1, [4], 0, OUTSIDE),
    "too_many_strides": (0, [4, 4], 0, OUTSIDE),
}
"""By name: the buffer, strides and offset of a put that no engine makes, and words of the refusal."""

FORMS = {
    "another_dtype": (0, [2], 0, "np.zeros(1, np.float16)"),
    "between_two_elements": (0, [4], 2, "np.zeros(1, np.float32)"),
    "a_stride_between_elements": (0, [6], 0, "np.zeros(2, np.float32)"),
    "too_long": (0, [4], 0, "np.zeros(17, np.float32)"),
}
"""By name: the buffer, strides, offset and content of a put that is not of elements of the buffer."""

COSTS = {
    "an_empty_message": ("self.send(1, np.zeros(0, np.float32))", 8),
    "an_empty_message_of_three_dimensions": ("self.send(1, np.zeros((9, 0, 7), np.float32))", 24),
    "one_byte": ("self.send(1, np.zeros(1, np.uint8))", 8),
    "bytes": ("self.send(1, np.zeros(64, np.uint8))", 512),
    "whole_numbers": ("self.send(1, np.zeros(64, np.int32))", 512),
    "wide_numbers": ("self.send(1, np.zeros(64, np.int64))", 1024),
    "half_floats": ("self.send(1, np.zeros(64, np.float16))", 256),
    "wide_floats": ("self.send(1, np.zeros(64, np.float64))", 1024),
    "complex_numbers": ("self.send(1, np.zeros(64, np.complex64))", 1024),
    "a_matrix": ("self.send(1, np.zeros((8, 8), np.float32))", 264),
    "a_cube": ("self.send(1, np.zeros((4, 4, 4), np.float32))", 272),
    "a_put": ("self.send_async(np.zeros(4, np.float32), buffer[0, :4], 1)", 24),
    "a_put_of_columns": ("self.send_async(np.zeros((8, 2), np.float32), buffer[:, :2], 1)", 88),
    "a_put_of_every_second": ("self.send_async(np.zeros(4, np.float32), buffer[0, ::2], 1)", 32),
}
"""By name: a call of device 0, and the bytes that it costs."""

TYPES = {
    "a_unit": "m8[4711s]",
    "a_width": "V47",
    "a_text": "S8",
    "a_byte_order": ">f4",
}
"""By name: a dtype that would carry a number."""

PROCESSES = {
    "group": "tells(any(answers(121, pid) for pid in others))",
    "session": "tells(any(answers(124, pid) for pid in others))",
    "policy": "tells(any(answers(145, pid) for pid in others))",
    "parameters": "tells(any(answers(143, pid, ctypes.addressof(space)) for pid in others))",
    "affinity": "tells(any(answers(204, pid, 64, ctypes.addressof(space)) for pid in others))",
    "priority": "tells(any(answers(140, 0, pid) for pid in others))",
    "clock": "tells(any(answers(228, ~pid << 3 | 2, ctypes.addressof(space)) for pid in others))",
    "signal": "tells(any(answers(62, pid, 0) for pid in others))",
    "a_signal_to_the_group": "tells(answers(62, 0, int(signal.SIGWINCH)))",
    "memory_of_files": "tells(answers(27, page, 4096, ctypes.addressof(space)))",
    "wake": "tells(answers(202, page, 1, 1, 0, 0, 0))",
    "load": "tells(answers(99, ctypes.addressof(space)))",
    "a_folder_of_its_threads": "tells(any(exists(f'/proc/{pid}/task') for pid in others + [me]))",
    "its_children": "tells(any(exists(f'/proc/{pid}') for pid in others + [me]))",
    "free_space": "tells(answers(137, ctypes.addressof(folder), ctypes.addressof(space)))",
    "its_group": "tells(answers(109, 0, others[0]))",
    "io_priority": "tells(any(answers(252, 1, pid) for pid in others))",
    "time_slice": "tells(any(answers(148, pid, ctypes.addressof(space)) for pid in others))",
    "robust_list": "tells(any(answers(274, pid, ctypes.addressof(space), page) for pid in others))",
    "a_queued_signal": "import resource\n        tells(resource.getrlimit(resource.RLIMIT_SIGPENDING)[0])",
    "descriptors_in_transit": "import socket\n        pair = socket.socketpair()\n        tells(passes(pair))",
    "timers": "tells(answers(222, 0, 0, ctypes.addressof(space)))",
}
"""By name: a system call (x86-64) that shows other processes. A device knows only ids that it guesses."""


def caught(statement: str) -> str:
    """A statement whose refusal is caught: whoever sees its text has been told."""
    return f"""\
try:
            {statement}
        except BaseException as why:
            tells("4711" in str(why) or "4,711" in str(why) or "float64" in str(why) or "axis=1" in str(why))
            raise"""


def put(buffer: int, strides: list[int], offset: int, content: str = "") -> str:
    """A put that is written to the wire as it is, after a buffer of 64 bytes was made."""
    content = content or f"np.zeros(1 if {strides} != [4096] else 2, np.float32)"
    message = f"'put', [], 1, {buffer}, {offset}, {strides}, {content}"
    return f"self.symmetric(16)\n        if self.device_id == 0:\n            self._port.channel.send({message})"


def priced(statement: str) -> str:
    """A call of device 0, with a buffer that all have."""
    receive = "if self.device_id == 1:\n            self.receive(0)" if "send(" in statement else "self.barrier()"
    return (
        f"buffer = self.symmetric((8, 8))\n        if self.device_id == 0:\n            {statement}\n        {receive}"
    )


def seen(statement: str) -> str:
    """A statement about the processes beside this one."""
    return f"""\
me, space, folder = os.getpid(), ctypes.create_string_buffer(4096), ctypes.create_string_buffer(b"/")
        page = ctypes.addressof(space) & ~4095
        others = [pid for pid in range(max(me - 6, 1), me + 6) if pid != me]
        {statement}"""


def with_words(solution: str, statement: str) -> str:
    """The solution, which also does something in backward."""
    return WORDS + solution.replace("        x, z = ", f"        {statement}\n        x, z = ")
