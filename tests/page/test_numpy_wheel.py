"""Numpy's wheel for the site: taken by the name and the digest that Pyodide's lock file has, and refused otherwise."""

from __future__ import annotations

import json
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from puzzles.page import build
from puzzles.page.build import MARK, LockedWheel, SiteError, licences, pack, wheel_of
from tests.support.numpy_stand_in import write_wheel

NAME = "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the wheel."""
    (tmp_path / "wheels").mkdir()
    return write_wheel(tmp_path / "wheels" / NAME).parent


@pytest.fixture
def locked(tmp_path: Path, folder: Path) -> LockedWheel:
    """The entry of the wheel in the lock file of a Pyodide."""
    pyodide = tmp_path / "modules" / "pyodide"
    pyodide.mkdir(parents=True)
    digest = sha256((folder / NAME).read_bytes()).hexdigest()
    lock = {"packages": {"numpy": {"file_name": NAME, "sha256": digest, "imports": ["numpy"]}}}
    (pyodide / "pyodide-lock.json").write_text(json.dumps(lock))
    (pyodide / "package.json").write_text('{"version": "314.0.7"}')
    (pyodide / "pyodide.mjs").write_text("cdnUrl=k(e.packageBaseUrl??`https://example.org/pyodide/v${U}/full/`)")
    return LockedWheel.of(pyodide.parent)


def test_a_wheel_is_taken_by_name_and_digest(locked: LockedWheel, folder: Path) -> None:
    assert locked.given(folder) == folder / NAME


def test_a_missing_folder_is_refused(locked: LockedWheel, folder: Path) -> None:
    for path in (folder / "nowhere", folder / NAME):
        with pytest.raises(SiteError) as caught:
            locked.given(path)
        assert all(fact in str(caught.value) for fact in ("NUMPY_WHEEL names a folder", str(path), NAME))


def test_another_name_is_refused_and_both_are_said(locked: LockedWheel, folder: Path) -> None:
    (folder / NAME).rename(folder / "numpy-2.0.0-cp312-cp312-linux_x86_64.whl")
    with pytest.raises(SiteError, match=f"has no {NAME}; there is numpy-2.0.0"):
        locked.given(folder)
    (folder / "numpy-2.0.0-cp312-cp312-linux_x86_64.whl").unlink()
    with pytest.raises(SiteError, match=f"has no {NAME}; it is in"):
        locked.given(folder)


def test_another_digest_is_refused(locked: LockedWheel, folder: Path) -> None:
    (folder / NAME).write_bytes((folder / NAME).read_bytes() + b" ")
    with pytest.raises(SiteError, match=f"SHA-256 is .*Pyodide has {locked.digest}"):
        locked.given(folder)


class Release:
    """What stands in for the network: an answer, or none."""

    def __init__(self, data: bytes | None) -> None:
        self.data, self.asked = data, list[str]()

    def __call__(self, address: str, timeout: float) -> Any:
        self.asked.append(address)
        if self.data is None:
            raise OSError("no network")
        return BytesIO(self.data)


def test_without_a_folder_it_comes_from_the_release_once(
    locked: LockedWheel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Release((folder / NAME).read_bytes())
    monkeypatch.setattr(build, "urlopen", release)
    assert locked.released(tmp_path) == locked.released(tmp_path) == tmp_path / NAME
    assert release.asked == [f"https://example.org/pyodide/v314.0.7/full/{NAME}"]


def test_a_release_that_cannot_be_reached_leaves_numpy_out(
    locked: LockedWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "urlopen", Release(None))
    assert locked.released(tmp_path) is None
    monkeypatch.setattr(build, "urlopen", Release(b"a page of the hotel's network"))
    with pytest.raises(SiteError, match=r"example\.org.*is not the wheel"):
        locked.released(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_an_address_that_is_named_has_to_answer(
    locked: LockedWheel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "https://example.net/wheels/"
    monkeypatch.setattr(build, "urlopen", Release(None))
    with pytest.raises(SiteError, match=f"{place}{NAME} cannot be loaded"):
        wheel_of(locked, place, tmp_path)
    monkeypatch.setattr(build, "urlopen", Release(b"another wheel"))
    with pytest.raises(SiteError, match=r"example\.net.*is not the wheel"):
        wheel_of(locked, place, tmp_path)
    monkeypatch.setattr(build, "urlopen", Release((folder / NAME).read_bytes()))
    assert wheel_of(locked, place, tmp_path) == tmp_path / NAME


def test_a_site_is_packed_with_its_wheel_only(locked: LockedWheel, folder: Path, tmp_path: Path) -> None:
    site, target = tmp_path / "site", tmp_path / "training-puzzles-site.zip"
    (site / "python-1").mkdir(parents=True)
    for name in (MARK, "index.html"):
        (site / name).write_text("x")
    with pytest.raises(SiteError, match=f"has no {NAME}, and an archive"):
        pack(site, target, locked)
    wheel = site / "python-1" / NAME
    wheel.write_bytes(b"another wheel")
    with pytest.raises(SiteError, match="is not the wheel"):
        pack(site, target, locked)
    assert not target.exists()
    wheel.write_bytes((folder / NAME).read_bytes())
    pack(site, target, locked)
    with ZipFile(target) as packed:
        assert packed.namelist() == [f"training-puzzles-site/{name}" for name in ("index.html", f"python-1/{NAME}")]
        assert packed.read(packed.namelist()[1]) == wheel.read_bytes()


def test_a_pyodide_without_an_address_asks_for_a_folder(locked: LockedWheel) -> None:
    (locked.pyodide / "pyodide.mjs").write_text("")
    with pytest.raises(SiteError, match="NUMPY_WHEEL=FOLDER"):
        locked.address()


def test_its_licence_is_served(locked: LockedWheel, folder: Path) -> None:
    text = licences(locked.pyodide.parent, (), (), folder / NAME)
    assert f"{NAME}:\n\nThe licence of" in text
