"""Lends sandbox servers to the sessions of the tests, because starting one takes longer than grading.

A session that was given no server takes one that an earlier session has returned, as files graded as a batch do. A
module ends the servers that it has started in a way of its own. A test marked `own_server` starts its own: it looks at
what a server has from its start, or does at its end, or asks it from other threads. Those have servers of their own
anyway, for bubblewrap ends a server with the thread that started it.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from puzzles.grading.session import Session
from puzzles.sandbox.client import SandboxClient as Client
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import command, select_tier


def process_of(client: Client) -> int | None:
    """The id of the server's process, while it runs."""
    return client._server.pid if client._server is not None else None


class Lender:
    """One server for each way to start one, and more while several sessions are open."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lends = True
        self.clients: list[Client] = []
        self.free: defaultdict[tuple[str, ...], list[Client]] = defaultdict(list)

    def lends_to_sessions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin, end = Session.__init__, Session.__exit__

        def init(found: Session, submission: Any, *rest: Any, **named: Any) -> None:
            begin(found, submission, *rest, **named)
            if self.lends and not found._lent and found.tier.forks and self._is_here():
                found._client, found._lent = self._take(found._client), True

        def leave(found: Session, *why: Any) -> None:
            end(found, *why)
            if found._client in self.clients:
                self.free[_start_of(found._client)].append(found._client)

        monkeypatch.setattr(Session, "__init__", init)
        monkeypatch.setattr(Session, "__exit__", leave)

    def _is_here(self) -> bool:
        """In the process and the thread of the tests: neither in a forked worker, nor in a pool's thread."""
        return os.getpid() == self.owner and threading.current_thread() is threading.main_thread()

    def _take(self, fresh: Client) -> Client:
        """One that is free and was started alike, or else the fresh one, whose server has not been started."""
        free = self.free[_start_of(fresh)]
        if not free:
            self.clients.append(fresh)
        return free.pop() if free else fresh

    def processes(self) -> set[int]:
        """Of the servers that run, and of the first process of each in its sandbox."""
        found = {pid for client in self.clients if (pid := process_of(client))}
        return found | {
            pid for client in self.clients if client.tier.is_sandbox for pid in children(process_of(client))
        }

    def close(self, but: Collection[tuple[str, ...]] = ()) -> None:
        """Ends all servers, but those that were started in these ways."""
        for client in self.clients:
            if _start_of(client) not in but:
                client.close()
        self.clients = [client for client in self.clients if _start_of(client) in but]
        self.free = defaultdict(list, {start: free for start, free in self.free.items() if start in but})


@cache
def ordinary_starts() -> frozenset[tuple[str, ...]]:
    """How servers are started with the limits that hold if nobody names others, in the tiers that work here."""
    return frozenset(tuple(command(tier, Limits())) for tier in (select_tier(), select_tier("process")))


def _start_of(client: Client) -> tuple[str, ...]:
    return tuple(command(client.tier, client.limits))


def children(process: int | None) -> set[int]:
    """The ids of a process's children."""
    tasks = Path(f"/proc/{process}/task/{process}/children")
    return set(map(int, tasks.read_text().split())) if tasks.exists() else set()


LENDER = Lender()
