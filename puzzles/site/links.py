"""Links that hold a puzzle's code or a run of it, compressed in the fragment, which a browser sends to no server."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

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
