"""The grader's side of the sandbox: starts processes for submissions, asks them with deadlines, and ends them.

One server handles many submissions, one after the other, because starting Python costs more than most runs. It starts
with the first request. A server that is lost is not the player's failure: the request is repeated once, in a fresh one.
A system that cannot fork has no server; there a process is started for each survey and each run.

Rejected: a process for every run on every system, which would start Python each time. A second tier in bubblewrap and
cgroups, which stopped nothing more than Landlock, seccomp and the limits of processes, and hid only which files and
processes exist. A thread that watches the time: the channel polls its pipes until the deadline instead.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple
from uuid import uuid4

from puzzles import START

from . import protocol, remove_tree
from .protocol import MAX_SHOWN_OUTPUT, RUN_FOLDER, Channel
from .visible_files import IMPORT_PACKAGE, hidden_paths, read_rules
from .worker import landlock, seccomp

# --- How a process is started, and what it sees ---


START_SECONDS = 10.0
"""Seconds that a server has to start, beyond any limit of the player's."""

SERVER_PROGRAM = "import gc; gc.disable(); from puzzles.sandbox.worker.server import main; main()"
ONESHOT_PROGRAM = "from puzzles.sandbox.worker.runner import main; main()"


def can_fork() -> bool:
    """False on a system that cannot fork, where a process is started for each run."""
    return hasattr(os, "fork")


def command(program: str = SERVER_PROGRAM) -> list[str]:
    start = f"{START}; sys.path.append({str(IMPORT_PACKAGE.parent)!r}); {program}"
    return [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", start]


def cache_bytecode() -> None:
    """Compiles the modules that only servers import, once for all servers, which write nothing."""
    worker = Path(__file__).parent / "worker"
    if not (sys.dont_write_bytecode or os.path.exists(cache_from_source(str(worker / "server.py")))):
        from compileall import compile_dir  # here, because it is slow to import and seldom needed

        compile_dir(worker, quiet=2)


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""For the libraries of numpy, because a run may start no thread."""


def environment(folder: str) -> dict[str, str]:
    """Returns the environment variables that a submission sees: none of the user's."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows cannot do without
    return {**kept, **ONE_THREAD, "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


# --- The client of a server ---


MAX_ANSWER = 64 << 20
"""Bytes: a result of the greatest size, escaped twice."""

WORKER_UIDS = range(61_184, 65_520)
"""User ids that belong to nobody: systemd gives them to services without a user of their own. Each server has its
own, because the system counts processes by user."""

CONDITIONS = ("stages", "packages", "limits")
"""What the server has to know about a submission. Everything else goes to the supervisor only."""

SHARED_MEMORY = "/dev/shm"

MARK = "TRAINING_PUZZLES_RUN"
"""Environment variable by which the processes of a killed server are found."""


class SandboxLostError(Exception):
    """The server or the supervisor has ended twice in a row, for an unknown reason."""


class _LostError(Exception):
    """The server or the supervisor has ended, or did not answer in time."""


class SandboxClient:
    """Client of one server, which is started with the first submission."""

    def __init__(self) -> None:
        number = uuid4().int
        self.uid = WORKER_UIDS[number % len(WORKER_UIDS)]
        self._mark = f"{os.getpid()}-{number:x}"
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._folder = ""
        self._rules: dict[str, Any] = {}
        """What a run may read, as long as the server lives."""
        self._given: dict[str, Any] = {}
        self._seconds = 0.0
        self._is_open = False
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], Any] | None = None

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and lets a worker read it: how that ended, with the survey of its definitions."""
        self._given, self._seconds = given, seconds
        return self._twice(self._open)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition of the open submission and returns how that ended."""

        def run() -> dict[str, Any]:
            if not self._is_open:
                self._open()
            return self._exchange([request], seconds)

        return self._twice(run)

    def done(self) -> None:
        """Closes the submission; the server keeps no part of it."""
        if self._is_open:
            with suppress(_LostError):
                self._exchange([{"done": True}], START_SECONDS, left=0)
        self._given, self._is_open = {}, False

    def _twice(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer; from a fresh server if the first one is lost."""
        try:
            return work()
        except _LostError:
            pass
        try:
            return work()
        except _LostError as why:
            raise SandboxLostError(str(why)) from None

    def _open(self) -> dict[str, Any]:
        if self._server is None:
            self._start()
        conditions = {name: self._given[name] for name in CONDITIONS}
        source = {name: value for name, value in self._given.items() if name not in CONDITIONS}
        conditions |= {"uid": self.uid, **self._rules}
        answer = self._exchange([conditions, source], self._seconds)
        self._is_open = self._server is not None
        return answer

    def close(self) -> int:
        """Ends the server with all that it still runs, removes its folder and returns its exit code."""
        server, self._server, self._is_open = self._server, None, False
        if self._finalizer is not None:
            self._finalizer.detach()
        code = 0 if server is None else _end(server)
        if code != 0:
            _end_marked(f"{MARK}={self._mark}")
        if self._folder:
            remove_tree.remove(self._folder)
            self._folder = ""
        return code

    def _start(self) -> None:
        cache_bytecode()
        self._rules = read_rules()
        # in memory, if there is such a folder, so that no run slows down the disk for others
        quick = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None
        self._folder = tempfile.mkdtemp(prefix=f"puzzles-{os.getpid()}-", dir=quick)
        if os.getuid() == 0:
            os.chmod(self._folder, 0o711)  # or the run's user could not pass through
        try:
            self._server = subprocess.Popen(
                command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder,
                env={**environment(os.path.join(self._folder, RUN_FOLDER)), MARK: self._mark},
                start_new_session=True,
            )
        except OSError as why:  # no further process: the next file may have one
            self.close()
            raise _LostError(f"not started ({why.strerror})") from None
        self._finalizer = weakref.finalize(self, _end, self._server)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._channel = Channel(self._server.stdin, self._server.stdout)

    def _exchange(self, messages: Iterable[dict[str, Any]], seconds: float, left: int | None = None) -> dict[str, Any]:
        """The answer to some messages. With `left`, that is the exit code with which a supervisor has to end now."""
        answer = self._answer(messages, seconds)
        if answer is None:
            raise _LostError(_words(self.close()))
        if answer.get("left", left) != left:  # the supervisor is lost, and the server ends with it
            self.close()
            raise _LostError(_words(int(answer["left"])))
        if not answer.get("usable", True):
            self.close()
        return answer

    def _answer(self, messages: Iterable[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
        if self._server is None or self._channel is None:
            return None
        try:
            return self._channel.exchange(messages, seconds, MAX_ANSWER)
        except TimeoutError:
            self._server.kill()
        except (OSError, ValueError, RecursionError):
            pass
        return None


def _end(server: subprocess.Popen[bytes]) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    with suppress(OSError):
        server.stdin.close()  # on which the server ends all runs, then itself
    try:
        code = server.wait(5.0)
    except subprocess.TimeoutExpired:
        server.kill()
        code = server.wait()
    server.stdout.close()
    return code


def end_words(ended: str, code: int) -> str:
    """Describes the end of a process: "exit" with a code, or "signal" with a number."""
    if ended == "exit":
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(code).name}"
    except ValueError:
        return f"ended by signal {code}"


def _words(code: int) -> str:
    """The same for an exit code as `subprocess` reports it."""
    return end_words("signal", -code) if code < 0 else end_words("exit", code)


def _end_marked(mark: str) -> None:
    """Kills processes that a killed server left behind, if they still have the server's environment."""
    if not os.path.isdir("/proc/self"):
        return
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = mark.encode() in file.read()
            if marked:
                os.kill(int(pid), signal.SIGKILL)


# --- The client where nothing can fork ---


MAX_SURVEY = 64 << 20
"""Bytes."""


class OneshotClient:
    """Same interface as `SandboxClient`."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and lets a process read it: how that ended, with the survey of its definitions."""
        self._given = {**given, "hidden": hidden_paths()}
        return self._run(None, seconds, MAX_SURVEY)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition: how that ended, and what it sent and printed."""
        return self._run(request, min(seconds, request["left"] + START_SECONDS / 10), request["longest"])

    def done(self) -> None:
        """Does nothing: no process outlives its run."""

    def close(self) -> int:
        """Does nothing, as above; the exit code means success."""
        return 0

    def _run(self, request: dict[str, Any] | None, seconds: float, longest: int) -> dict[str, Any]:
        """Starts a process for one request, waits for it for `seconds`, and reports its end.

        A run's seconds begin when the process reports that it has started, for without compiled modules that is slow.
        """
        with tempfile.TemporaryDirectory(prefix="puzzles-", ignore_cleanup_errors=True) as folder:
            process = self._start(folder)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            result = PipeReader(process.stdout, longest, longest, process)
            most = self._given["limits"]["output"]
            output = PipeReader(process.stderr, most, MAX_SHOWN_OUTPUT, process)
            with suppress(OSError):
                protocol.send(process.stdin, {**self._given, "request": request})
            if request is not None:
                result.begun.wait(START_SECONDS)
            begin = monotonic()
            ended, code = "exit", 0
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                ended = "time"
            end_tree(process)
            with suppress(OSError):
                process.stdin.close()
            for reader in (result, output):
                reader.join(START_SECONDS)
        if result.flooded or output.flooded:
            ended, code = ("result", longest) if result.flooded else ("output", most)
        elif code < 0 and ended == "exit":
            ended, code = "signal", -code
        took = monotonic() - begin
        texts = {"output": output.kept.decode(errors="replace"), "result": result.kept.decode(errors="replace")}
        return {"ended": ended, "code": code, "took": took, "printed": output.read, **texts}

    def _start(self, folder: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(ONESHOT_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
        )


class PipeReader(threading.Thread):
    """Reads a pipe to its end, keeps the beginning, and ends the process when there is too much."""

    def __init__(self, pipe: IO[bytes], most: int, keep: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.pipe = pipe
        self.most = most
        self.keep = keep
        self.process = process
        self.kept = b""
        self.read = 0
        self.begun = threading.Event()
        """Set with the first bytes, or at the end."""
        self.start()

    @property
    def flooded(self) -> bool:
        return self.read > self.most

    def run(self) -> None:
        with self.pipe, suppress(OSError, ValueError):
            while data := os.read(self.pipe.fileno(), 1 << 16):
                self.begun.set()
                self.read += len(data)
                self.kept = (self.kept + data)[: self.keep]
                if self.flooded:
                    end_tree(self.process)
                    break
        self.begun.set()


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and, as far as the system knows them, those that it has started."""
    if os.name == "nt":
        words = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    else:
        with suppress(OSError):
            os.killpg(process.pid, 9)
    with suppress(OSError):
        process.kill()
    process.wait()


Client = SandboxClient | OneshotClient
"""Opens one submission at a time, asks about it, and ends all processes."""


# --- What protects this machine; docs/security.md says the same of every system, and how each line is tested ---


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
