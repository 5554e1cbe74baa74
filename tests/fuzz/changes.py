"""Changes of texts and of trees of JSON, by chance: the same seed makes the same change."""

import copy
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 10**6, 10**12, 10**13, 2**63, 10**400, 0.5, -0.0, 1e308, True, None, "", "x", "\x1b[2J", "\ud800",
    [], {}, [[]], [0, 0], [1, 0], {"": 0}, "9" * 50, [None] * 20, "basic", "passed", "__class__",
)  # fmt: skip
"""Contents that a field may suddenly have."""


def changed_tree(draw: Random, tree: Any) -> Any:
    """A copy with one to three of its parts exchanged, taken out, doubled, moved or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return draw.choice(ODD)
        parent, key = draw.choice(places)
        match draw.randrange(6):
            case 0 | 1:
                parent[key] = copy.deepcopy(draw.choice(ODD))
            case 2:
                del parent[key]
            case 3:
                parent[key] = copy.deepcopy(_at(*draw.choice(places)))
            case 4 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(_at(*draw.choice(places))))
            case 5 if type(parent[key]) is int:
                parent[key] += draw.choice((-1, 1, 2, 10))
            case _:
                parent[key] = [parent[key]]
    return tree


def _places(tree: Any) -> Any:
    """(container, key) of every part, the outer ones first."""
    left = [tree]
    for node in left:
        keys = range(len(node)) if isinstance(node, list) else node if isinstance(node, dict) else ()
        for key in keys:
            yield node, key
            left.append(node[key])


def _at(parent: Any, key: Any) -> Any:
    try:
        return parent[key]
    except (KeyError, IndexError):  # it was taken out meanwhile
        return None


def changed_bytes(draw: Random, data: bytes, words: tuple[bytes, ...]) -> bytes:
    """The bytes with one to five places changed: flipped, cut, doubled, or with one of the words put in."""
    for _ in range(draw.randint(1, 5)):
        at = draw.randint(0, len(data))
        end = min(len(data), at + draw.choice((1, 1, 4, 40)))
        put = {
            0: bytes([draw.randrange(256)]),
            1: b"",
            2: data[at:end] * draw.choice((2, 3, 200)),
            3: draw.choice(words) + data[at:end],
        }[draw.randrange(4)]
        data = data[:at] + put + data[end:]
    return data
