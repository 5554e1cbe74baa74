"""Solutions of a player as a link that holds one, compressed in its fragment, and as files. The page's `share.js` reads
links."""

import ast
import re
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from io import BytesIO, StringIO
from zipfile import ZIP_DEFLATED, ZipFile

from puzzles.sandbox.worker.reading import bound_names

PORT = 8000
LOCAL = f"http://127.0.0.1:{PORT}/"
"""The address of `make serve`."""


def fragment(slug: str, kind: str, text: str) -> str:
    """What follows the '#' in a link, whose `kind` is code, run (a trace as JSON) or timetable (as text)."""
    return f"{slug}/{kind}/{packed(text)}"


def link(site: str, slug: str, kind: str, text: str) -> str:
    return f"{site.partition('#')[0]}#{fragment(slug, kind, text)}"


def packed(text: str) -> str:
    """A text, compressed (raw deflate), in the letters of base64 that addresses allow."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return urlsafe_b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode().rstrip("=")


def zipped(codes: Mapping[str, str]) -> str:
    """An archive with the code for each puzzle as a file, in base64."""
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for slug, code in codes.items():
            name = re.sub(r"\W", "_", slug, flags=re.ASCII)
            archive.writestr(f"my_solutions/{name}.py", code.encode(errors="surrogatepass"))
    return b64encode(packed.getvalue()).decode()


def split(text: str, slugs: Collection[str]) -> dict[str, str]:
    """The code for each puzzle that a file defines: the file without the lines that define other puzzles.

    Raises:
        SyntaxError, ValueError: the file is not valid Python.
    """
    nodes, lines = ast.parse(text).body, StringIO(text, newline="").readlines()
    names = [frozenset(bound_names(node)) for node in nodes]
    found = [slug for slug in slugs if any(slug in bound for bound in names)]

    def code_of(slug: str) -> str:
        others = {*found} - {slug}
        lines_of = {True: set[int](), False: set[int]()}
        for node, bound in zip(nodes, names):
            lines_of[bool(bound & others) and slug not in bound].update(_lines(node))
        left_out = lines_of[True] - lines_of[False]
        return "".join(line for number, line in enumerate(lines, 1) if number not in left_out)

    return {slug: code_of(slug) for slug in found}


def _lines(node: ast.stmt) -> range:
    first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
    return range(first, (node.end_lineno or node.lineno) + 1)
