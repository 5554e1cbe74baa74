"""A live Jupyter kernel for tests: run a cell, and get what it printed and showed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.commands import ROOT


class Kernel:
    """`run` a cell and get all its output as text: what was printed, shown, or raised."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client
        self.traceback = ""
        """The last exception as it was shown."""

    def run(self, cell: str, on_text: Callable[[str], None] = lambda text: None) -> str:
        """`on_text` hears each piece of printed text as it comes."""
        out: list[str] = []

        def collect(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    out.append(content["text"])
                    on_text(content["text"])
                case "execute_result" | "display_data":
                    out.append(" ".join(sorted(content["data"])) + "\n" + content["data"].get("text/plain", "") + "\n")
                case "error":
                    out.append(f"{content['ename']}: {content['evalue']}")
                    self.traceback = "\n".join(content["traceback"])

        self.client.execute_interactive(cell, output_hook=collect, timeout=30)
        return "".join(out)


@contextmanager
def live_kernel(folder: Path = ROOT) -> Iterator[Kernel]:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(cwd=str(folder), extra_arguments=["--Application.log_level=50"])
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
