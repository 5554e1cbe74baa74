"""Every attack names internals that exist: one that misses its target would pass and prove nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import lib
import lib.engine
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker.runner import DefinitionRun
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support import hostile, hostile_tracks

CLASSES = {name: thing for name in lib.__all__ if isinstance(thing := getattr(lib, name), type)}
ROOTS = {"lib": lib, **CLASSES}
"""Names that the imports above every attack bind."""


def attacks() -> dict[str, str]:
    """The whole file of every attack, as its test makes it."""
    found = {name: hostile.basic_with(body) for name, (body, *_) in {**hostile.FORGING, **hostile.BREAKING}.items()}
    for name, (body, *_) in hostile_tracks.BODIES.items():
        found[name] = hostile_tracks.IMPORTS + hostile_tracks.wrong(body)
    for name, (old, new, *_) in hostile_tracks.SOLVED.items():
        found[name] = hostile_tracks.IMPORTS + hostile_tracks.PARALLEL.replace(old, new, 1)
    for name, (body, *_) in hostile_tracks.LAYOUTS.items():
        found[name] = f"def ffn(graph):\n    {body}\n"
    return found


def test_every_dotted_name_exists() -> None:
    count = 0
    for name, text in attacks().items():
        for chain in chains(ast.parse(text)):
            count += 1
            found, *rest = chain
            for attribute in rest:
                assert hasattr(found, attribute), f"{name}: {'.'.join(map(str, chain))}"
                found = getattr(found, attribute)
    assert count > 30


def chains(tree: ast.Module) -> Iterator[list[Any]]:
    """Dotted names that begin with a module or a class of ours: the object, and its attributes."""
    roots = dict(ROOTS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            loaded = {alias.asname: import_module(alias.name) for alias in node.names if is_ours(alias.name)}
            roots.update((name, module) for name, module in loaded.items() if name)
        elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            for alias in node.names:
                yield from_import(node.module, alias.name)
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            names: list[Any] = []
            at: ast.expr = node
            while isinstance(at, ast.Attribute):
                names.insert(0, at.attr)
                at = at.value
            match at:
                case ast.Name(id=first) if first in roots:
                    yield [roots[first], *names]
                case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value=str(module))):
                    yield [import_module(module), *names]


def from_import(module: str, name: str) -> list[Any]:
    if name == "*":
        return [import_module(module)]
    return [import_module(f"{module}.{name}")] if is_module(module, name) else [import_module(module), name]


def is_module(package: str, name: str) -> bool:
    return hasattr(import_module(package), "__path__") and find_spec(f"{package}.{name}") is not None


def test_every_path_exists() -> None:
    paths = [path for text in attacks().values() for path in re.findall(r"\b(?:puzzles|solutions)/[\w/]+\.py", text)]
    assert paths
    assert [path for path in paths if not (INSTALL_ROOT / path).is_file()] == []


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("lib", "puzzles", "solutions")


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (hostile.FORGING["edits_by_gc"], f"{DefinitionRun.__name__} {DefinitionRun._send.__name__}"),
        (hostile_tracks.BODIES["finds_the_trials_in_memory"], f"{Trial.__name__} {MethodCall.__name__} wanted"),
        (hostile_tracks.SOLVED["resets_its_meter"], "_port meter sent"),
    ],
)
def test_names_in_texts_exist(attack: tuple[str, ...], words: str) -> None:
    for word in words.split():
        assert any(word in text for text in attack[:2])


def test_attributes_of_objects_exist() -> None:
    assert {"method", "wanted"} <= set(MethodCall.__annotations__)
    assert "calls" in Trial.__annotations__
    graph = LAYOUT_PUZZLES["ffn"].graph()
    for name in ("strategies", "itemsize", "shapes", "operators", "shard"):
        assert hasattr(graph, name)
