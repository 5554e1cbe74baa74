"""Names of students' pages: salted digests, so that a page can be handed out and tells nobody where the others are."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from .listed_files import listed, listed_files

INDEX = ".pages.json"
"""Keeps a folder's salt, and lists the pages of students in it. It is for the teacher."""

STUDENTS = "students"


class PageNames:
    """The pages of a folder's students. Names depend on the salt and on the name of the submission in its class."""

    def __init__(self, folder: Path | None, keys: Mapping[str, str]) -> None:
        """`keys`: the names in the class, by path. Without a folder the salt is used once."""
        salt = listed(folder, INDEX).get("salt") if folder else None
        self._salt = salt if isinstance(salt, str) and len(salt) == 32 else secrets.token_hex(16)
        self._earlier = listed_files(folder, INDEX) if folder else set()
        often = Counter(keys.values())
        self._digests = {
            path: blake2b((key if often[key] == 1 else path).encode("utf-8", "surrogatepass"),
                          key=self._salt.encode(), digest_size=10).hexdigest()
            for path, key in keys.items()
        }  # fmt: skip

    def page(self, path: str) -> str:
        """The page of a submission, in the folder."""
        return f"{STUDENTS}/{self._digests[path]}.html"

    def aliases(self) -> dict[str, str]:
        """A name for each submission that does not say whose it is."""
        size = 6
        while len({digest[:size] for digest in self._digests.values()}) < len(self._digests):
            size += 2
        return {path: f"Student {digest[:size]}" for path, digest in self._digests.items()}

    @property
    def stale(self) -> set[str]:
        """Pages that an earlier run has written and this one does not."""
        return self._earlier - {self.page(path) for path in self._digests}

    def index(self, with_stale: bool) -> str:
        """The text of the index: first with the stale pages, and without them when they are gone."""
        pages = {self.page(path) for path in self._digests} | (self.stale if with_stale else set())
        return json.dumps({"salt": self._salt, "files": sorted(pages)}, indent=1) + "\n"
