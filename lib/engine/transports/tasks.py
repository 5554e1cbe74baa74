"""Tasks that share one thread and switch where one waits: greenlets, or in a browser tasks that Pyodide suspends."""

import sys

if sys.platform == "emscripten":
    from .suspended import GreenletExit, getcurrent, greenlet
else:
    from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["GreenletExit", "getcurrent", "greenlet"]
