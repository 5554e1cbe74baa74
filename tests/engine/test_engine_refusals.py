"""Refusals of the engine: each message names the device, what was given, and what to do."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from lib import RuleError
from lib.engine import launch
from tests.support.engine_bodies.refusals import REFUSALS
from tests.support.engine_bodies.script import Script, on_each, refused
from tests.support.refusals import Refused


@pytest.mark.parametrize("what", REFUSALS)
def test_is_refused_with_who_what_and_what_to_do(what: str) -> None:
    does, words = REFUSALS[what]
    text = refused("inprocess", does, np.ones(4))
    assert text.startswith("RuleError: device "), text
    assert words in text


def test_an_empty_array_keeps_its_shape_on_the_way() -> None:
    def does(me: Any, x: Any) -> Any:
        return me.send(1, np.zeros((0, 4096), np.float32)) if me.device_id == 0 else me.receive(0).shape

    assert on_each("inprocess", does, n=2, metered=True)[1] == (0, 4096)


def test_launch_refuses_what_it_cannot_start() -> None:
    with Refused("no engine class", got=4):
        launch(4, Script)  # type: ignore[arg-type]
    with Refused("no whole number", what="num_devices", got="'4'"):
        launch(Script, "4")  # type: ignore[arg-type]
    with Refused("no list of devices", got="2"):
        launch(Script, 4, None, late_puts=2)  # type: ignore[arg-type]
    with Refused("no devices", size=0):
        launch(Script, 0)
    with Refused("no such transport", transport="udp", known="inprocess, mpi, torch"):
        launch(Script, 2, None, on="udp")
    refused = Refused("other number of inputs", inputs="3 inputs", devices="2 devices")
    with launch(Script, 2, lambda me, x: x) as run, refused:
        run.forward([1, 2, 3])


def test_launch_without_mpi4py_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "lib.engine.mpi", raising=False)
    with Refused("no MPI", install="pip install -e '.[mpi]'"):
        launch(Script, 1, None, on="mpi")


def test_a_run_that_failed_or_was_closed_says_so() -> None:
    with launch(Script, 2, lambda me, x: 1 / 0) as run:
        with pytest.raises(ZeroDivisionError):
            run.forward(0)
        with Refused("run has ended", because="of ZeroDivisionError: division by zero"):
            run.forward(0)
    with launch(Script, 2, lambda me, x: x) as run:
        pass
    with pytest.raises(RuleError, match="it was closed"):
        run.forward(0)
