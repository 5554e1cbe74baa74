"""Variants of a record's file: its constants, set as VARIANTS says, in a module of its own."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import solutions

ROOT = Path(solutions.__file__).parent.parent


@cache
def module_of(file: str, variant: str = "") -> ModuleType:
    """The module of a file such as 'solutions/records/fsdp.py', as it stands or with the constants of a variant."""
    name = ".".join(Path(file).with_suffix("").parts)
    if not variant:
        return import_module(name)
    spec = spec_from_file_location(f"{name}_{variant}", ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(module.VARIANTS[variant])
    return module
