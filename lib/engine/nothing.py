"""The argument of a method that takes none."""

from __future__ import annotations


class Nothing:
    """Its own instance; there is no other."""


NOTHING = Nothing()
