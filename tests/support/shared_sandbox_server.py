"""Lends sandbox servers to the sessions of the tests, because starting one takes longer than grading.

A session that was given no server takes one that an earlier session has returned, as files graded as a batch do. A
module ends the servers that it has started in a way of its own. A test marked `own_server` starts its own: it looks at
what a server has from its start, or does at its end, or asks it from other threads.
"""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from puzzles.judge.session import Session
from puzzles.sandbox.client import SandboxClient as Client
from puzzles.sandbox.client import can_fork


def process_of(client: Client) -> int | None:
    """The id of the server's process, while it runs."""
    return client._server.pid if client._server is not None else None


class Lender:
    """One server, and more while several sessions are open."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lends = True
        self.clients: list[Client] = []
        self.free: list[Client] = []

    def lends_to_sessions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin, end = Session.__init__, Session.__exit__

        def init(found: Session, submission: Any, *rest: Any, **named: Any) -> None:
            begin(found, submission, *rest, **named)
            if self.lends and not found._lent and can_fork() and self._is_here():
                found._client, found._lent = self._take(found._client), True

        def leave(found: Session, *why: Any) -> None:
            end(found, *why)
            if found._client in self.clients:
                self.free.append(found._client)

        monkeypatch.setattr(Session, "__init__", init)
        monkeypatch.setattr(Session, "__exit__", leave)

    def _is_here(self) -> bool:
        """In the process and the thread of the tests: neither in a forked worker, nor in a pool's thread."""
        return os.getpid() == self.owner and threading.current_thread() is threading.main_thread()

    def _take(self, fresh: Client) -> Client:
        """One that is free, or else the fresh one, whose server has not been started."""
        if not self.free:
            self.clients.append(fresh)
        return self.free.pop() if self.free else fresh

    def processes(self) -> set[int]:
        """Of the servers that run."""
        return {pid for client in self.clients if (pid := process_of(client))}

    def close(self) -> None:
        """Ends all servers."""
        for client in self.clients:
            client.close()
        self.clients, self.free = [], []


def children(process: int | None) -> set[int]:
    """The ids of a process's children."""
    tasks = Path(f"/proc/{process}/task/{process}/children")
    return set(map(int, tasks.read_text().split())) if tasks.exists() else set()


LENDER = Lender()
