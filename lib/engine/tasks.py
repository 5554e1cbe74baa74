"""Ending a greenlet from outside."""

from __future__ import annotations

from typing import Any

from greenlet import GreenletExit


def put_to_rest(task: Any) -> None:
    """Ends a greenlet that has begun and not ended. A player's code may catch even this, but not for ever."""
    for _ in range(100):
        if task is None or task.dead or not task:
            return
        task.throw(GreenletExit)
