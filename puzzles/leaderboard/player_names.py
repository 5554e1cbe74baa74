"""Which names on a leaderboard are one player's: names that look alike are.

Single letters after Unicode's confusables (UTS #39); pairs that look like one letter, such as rn, are not among them.
"""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

LOOK_ALIKES = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "look_alikes.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
"""By letter or digit, what looks like it in other scripts, and which digits look like a letter."""

TABLE = str.maketrans({other: letter for letter, others in LOOK_ALIKES.items() for other in others})


def players(names: Iterable[str]) -> dict[str, str]:
    """For each name the first, in order, of those that are the same player's."""
    first: dict[str, str] = {}
    player: dict[str, str] = {}
    for name in sorted(set(names)):
        keys = _keys(name)
        known = sorted({player[first[key]] for key in keys if key in first})
        player[name] = known[0] if known else name
        for other, one in list(player.items()):
            if one in known[1:]:
                player[other] = player[name]
        first.update({key: name for key in keys if key not in first})
    return player


def _keys(name: str) -> set[str]:
    """How a name looks: in its own letters, and in small ones. A capital I looks like an l, and an i does not."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    plain = " ".join(plain.split())
    return {plain.translate(TABLE).casefold(), plain.casefold().translate(TABLE)}
