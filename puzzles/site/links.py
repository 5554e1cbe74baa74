"""Solutions of a player as a link that holds one, compressed in its fragment, or as one file that holds all."""

import ast
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from puzzles.sandbox.worker.notebook_filter import bound_names

KINDS = ("code", "run", "timetable")
"""What a link may hold: a player's code, the trace of a run as JSON, or a timetable as text."""

MAX_UNPACKED = 4_000_000
"""Bytes that a link may unpack to."""


class LinkError(ValueError):
    """A text that is not such a link; the text says what is wrong with it."""


def fragment(slug: str, kind: str, text: str) -> str:
    """What follows the '#' in a link."""
    return f"{slug}/{kind}/{packed(text)}"


def link(site: str, slug: str, kind: str, text: str) -> str:
    """The link for the address of a site."""
    return f"{site.partition('#')[0]}#{fragment(slug, kind, text)}"


def read(link: str) -> tuple[str, str, str]:
    """Slug, kind and text of a link, or of what follows its '#'."""
    parts = link.rpartition("#")[2].split("/")
    if len(parts) != 3 or parts[1] not in KINDS:
        raise LinkError(
            "this is not a link to code, to a run or to a timetable; such a link ends in #PUZZLE/code/..., "
            "#PUZZLE/run/... or #PUZZLE/timetable/..."
        )
    slug, kind, data = parts
    return slug, kind, unpacked(data)


def packed(text: str) -> str:
    """A text, compressed (raw deflate), in the letters of base64 that addresses allow."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return urlsafe_b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode().rstrip("=")


def unpacked(data: str) -> str:
    """"""
    try:
        squeezed = urlsafe_b64decode(data.encode() + b"=" * (-len(data) % 4))
        unsqueeze = zlib.decompressobj(-zlib.MAX_WBITS)
        text = unsqueeze.decompress(squeezed, MAX_UNPACKED)
        if unsqueeze.unconsumed_tail:
            raise LinkError(f"this link unpacks to more than {MAX_UNPACKED:,} bytes")
        if not unsqueeze.eof:
            raise ValueError("it is cut off")
        return text.decode()
    except (ValueError, zlib.error) as why:
        if isinstance(why, LinkError):
            raise
        raise LinkError("this link is damaged or cut off; copy the whole of it") from None


HEAD = '''\
"""My solutions of the Training Puzzles.

    puzzles grade FILE
"""
'''


class ClashError(ValueError):
    """Two solutions need one name for different things; the text says which, and what to do."""


class FilePart(NamedTuple):
    """A statement at the top level of a file, with the comments before it."""

    text: str
    names: frozenset[str]
    kind: type[ast.AST]


def parts_of(text: str) -> Iterator[FilePart]:
    """The statements of a file, in order."""
    lines, done = text.splitlines(), 0
    for node in ast.parse(text).body:
        end = node.end_lineno or node.lineno
        if end <= done:
            continue  # the second of two statements on a line
        yield FilePart("\n".join(lines[done:end]).strip("\n"), frozenset(bound_names(node)), type(node))
        done = end


def joined(codes: Mapping[str, str]) -> str:
    """One file of the code for each puzzle. What several have in common is there once; code that is not Python is kept
    as a comment.
    """
    owner: dict[str, tuple[str, str]] = {}
    first, rest, seen = [], [], set[str]()
    for slug, code in codes.items():
        try:
            parts = list(parts_of(code))
        except (SyntaxError, ValueError) as why:
            rest.append(_as_comment(slug, code, why))
            continue
        for part in parts:
            if part.text in seen or (part.kind is ast.Expr and not part.names):
                continue
            seen.add(part.text)
            if part.kind in (ast.Import, ast.ImportFrom):
                first.append(part.text)
                continue
            for name in part.names:
                other, text = owner.setdefault(name, (slug, part.text))
                if other != slug and text != part.text:
                    raise ClashError(f"{other} and {slug} both define {name}, differently; rename it in one of them")
            rest.append(part.text)
    first.sort(key=lambda text: "__future__" not in text)
    return "\n\n\n".join([HEAD + "\n" + "\n".join(first), *rest]) + "\n"


def split(text: str, slugs: Collection[str]) -> dict[str, str]:
    """The code for each puzzle that a file defines: the file without the definitions of other puzzles."""
    parts = list(parts_of(text))
    found = [slug for slug in slugs if any(slug in part.names for part in parts)]
    if len(found) == 1:
        return {found[0]: text}
    others = {slug: frozenset(found) - {slug} for slug in found}
    return {slug: _code(part for part in parts if not part.names & others[slug]) for slug in found}


def _code(parts: Iterator[FilePart]) -> str:
    """Imports on lines that follow each other, definitions apart."""
    text, before = "", ""
    for part in parts:
        if part.kind is ast.Expr:
            continue
        together = part.kind in (ast.Import, ast.ImportFrom) and before != "definition"
        text += ("\n" if together else "\n\n\n") * bool(text) + part.text
        before = "import" if part.kind in (ast.Import, ast.ImportFrom) else "definition"
    return text + "\n"


def _as_comment(slug: str, code: str, why: Exception) -> str:
    lines = [f"{slug} is not valid Python yet ({why}):", *code.splitlines()]
    return "\n".join(f"# {line}".rstrip() for line in lines)
