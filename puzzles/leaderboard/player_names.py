"""Which names on a leaderboard are one player's: names that look alike are.

Single letters after Unicode's confusables (UTS #39); pairs that look like one letter, such as rn, are not among them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

LOOK_ALIKES = {
    "a": "\u0430\u03b1", "b": "\u042c\u0184", "c": "\u0441\u03f2", "d": "\u0501", "e": "\u0435\u04bd",
    "f": "\u0192", "g": "\u0261\u0581", "h": "\u04bb\u0570", "i": "\u0456\u03b9\u0131", "j": "\u0458\u03f3",
    "k": "\u043a\u03ba", "l": "\u04cf|1I\u01c0", "m": "\u043c", "n": "\u0578", "o": "\u043e\u03bf\u03c3\u0585",
    "p": "\u0440\u03c1", "q": "\u051b\u0563", "r": "\u0433\u1d26", "s": "\u0455\ua731", "t": "\u0442\u03c4",
    "u": "\u03c5\u057d", "v": "\u03bd\u0475", "w": "\u051d\u03c9\u0461", "x": "\u0445\u03c7",
    "y": "\u0443\u03b3\u04af", "z": "\u1d22", "A": "\u0410\u0391", "B": "\u0412\u0392", "C": "\u0421\u03f9",
    "E": "\u0415\u0395", "H": "\u041d\u0397", "J": "\u0408\u037f", "K": "\u041a\u039a", "M": "\u041c\u039c",
    "N": "\u039d", "O": "\u041e\u039f0\u0555", "P": "\u0420\u03a1", "S": "\u0405\u054f", "T": "\u0422\u03a4",
    "X": "\u0425\u03a7", "Y": "\u0423\u03a5\u04ae", "Z": "\u0396\ua4dc", "G": "\u050c", "Q": "\u051a",
    "W": "\u051c", "L": "\u13de\u053c", "D": "\u13a0", "F": "\u03dc", "U": "\u054d\ua4f4", "V": "\u0474",
    "R": "\u13d2", "I": "\u0406\u0399\u04c0",
}  # fmt: skip
"""By Latin letter, what looks like it in Cyrillic, Greek, Armenian and other scripts, and which digits do."""

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
