"""Refusals of the engine: each message names the device, what was given, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lib import RuleError
from lib.engine import launch
from tests.support.engine_bodies.script import Script, on_each, refused

REFUSALS = {
    "a device that is not there": (
        lambda me, x: me.send(4, x),
        "device 0 of 4, send(4): there is no device 4; there are 4",
    ),
    "oneself": (
        lambda me, x: me.receive(me.device_id),
        "receive(0): a device cannot send to or receive from itself; keep",
    ),
    "objects": (lambda me, x: me.all_reduce(np.array([None])), "all_reduce(): arrays of Python objects cannot be sent"),
    "a sent object": (lambda me, x: me.send(1, np.array([{}])), "send(1): arrays of Python objects"),
    "text": (lambda me, x: me.all_reduce(np.array(["a"])), "arrays of dtype <U1 cannot be reduced; convert"),
    "an operation": (
        lambda me, x: me.all_reduce(x, "mean"),
        "there is no reduction 'mean'; there are sum, avg, max, min, prod",
    ),
    "an axis": (lambda me, x: me.all_gather(x, 2), "there is no axis 2 in an array of shape (4,)"),
    "a cut": (
        lambda me, x: me.reduce_scatter(x[:3]),
        "axis 0 of an array of shape (3,) cannot be cut into 4 equal parts; choose",
    ),
    "a scalar's axis": (
        lambda me, x: me.all_to_all(x[0]),
        "a scalar has no axis to cut; reshape it, or use all_reduce",
    ),
    "not a member": (lambda me, x: me.all_reduce(x, group=[1, 2]), "device 0 is not in group (1, 2); only its members"),
    "twice a member": (
        lambda me, x: me.all_reduce(x, group=[0, 0]),
        "group (0, 0) names a device twice; name each once",
    ),
    "a far member": (lambda me, x: me.all_reduce(x, group=[0, 9]), "there is no device 9; there are 4 devices, 0 to 3"),
    "not symmetric": (
        lambda me, x: me.send_async(x, x, 1),
        "dst is not a view of a symmetric buffer; get one from self.symm",
    ),
    "a put into something else": (
        lambda me, x: me.send_async(x, [0.0], 1),
        "send_async(1): dst is not a view of a symmetric buffer; get one from self.symmetric",
    ),
    "a symmetric buffer of objects": (
        lambda me, x: me.symmetric(3, object),
        "symmetric(): arrays of Python objects cannot be sent",
    ),
    "no operation": (lambda me, x: me.all_reduce(x, None), "all_reduce(): there is no reduction 'None'; there are sum"),
    "half an axis": (lambda me, x: me.all_gather(x, 0.5), "all_gather(): an axis must be a whole number; got 0.5"),
    "half a device": (lambda me, x: me.send(1.5, x), "send(): a device must be a whole number; got 1.5"),
    "arguments in the wrong order": (
        lambda me, x: me.send(x, 1),
        "send(): a device must be a whole number; got array([1., 1., 1., 1.])",
    ),
    "a group that is a number": (
        lambda me, x: me.all_reduce(x, group=2),
        "all_reduce(): devices are given as a list, such as [0, 1]; got 2",
    ),
    "a group without order": (
        lambda me, x: me.all_reduce(x, group={0, 1, 2, 3}),
        "devices are given as a list, because their order counts; got the set {0, 1, 2, 3}",
    ),
    "a group of halves": (lambda me, x: me.all_reduce(x, group=[0.5]), "such as [0, 1]; got [0.5]"),
    "a number as a shape": (
        lambda me, x: me.send(1, np.empty((4_000_000_000, 0))),
        "send(1): an array of float64 (4000000000, 0) is empty, so only its shape would be sent, which no meter counts",
    ),
    "a number as a width": (lambda me, x: me.send(1, np.empty(0, "S70000")), "|S70000 (0,) is empty, so only its"),
    "words as names of fields": (
        lambda me, x: me.send(1, np.zeros(1, [("words", "i1")])),
        "send(1): an array with named fields (words) cannot be sent",
    ),
    "words as metadata": (
        lambda me, x: me.all_reduce(me.all_reduce(np.zeros(1, "i1")).astype(np.dtype("i1", metadata={"words": 1}))),
        "all_reduce(): a dtype with metadata cannot be sent; convert the array with astype",
    ),
    "a put that does not fit": (
        lambda me, x: me.send_async(x, me.symmetric(3), 1),
        "it puts float64 (4,) into float32 (3,); both must have the same shape and dtype",
    ),
}


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
    with pytest.raises(RuleError, match="launch runs a subclass of ShardedEngine; got 4"):
        launch(4, Script)  # type: ignore[arg-type]
    with pytest.raises(RuleError, match="num_devices must be a whole number; got '4'"):
        launch(Script, "4")  # type: ignore[arg-type]
    with pytest.raises(RuleError, match=r"given as a list, such as \[0, 1\]; got 2"):
        launch(Script, 4, None, late_puts=2)  # type: ignore[arg-type]
    with pytest.raises(RuleError, match="num_devices is 0; a run needs at least one"):
        launch(Script, 0)
    with pytest.raises(RuleError, match="there is no transport 'udp'; there are inprocess, mpi"):
        launch(Script, 2, None, on="udp")
    refused = pytest.raises(RuleError, match="there are 3 inputs for 2 devices; give a list with one per device")
    with launch(Script, 2, lambda me, x: x) as run, refused:
        run.forward([1, 2, 3])


def test_a_run_that_failed_or_was_closed_says_so() -> None:
    with launch(Script, 2, lambda me, x: 1 // 0) as run:
        with pytest.raises(ZeroDivisionError):
            run.forward(0)
        with pytest.raises(
            RuleError, match=r"has ended; launch a new one\. It ended because of ZeroDivisionError: integer"
        ):
            run.forward(0)
    with launch(Script, 2, lambda me, x: x) as run:
        pass
    with pytest.raises(RuleError, match="it was closed"):
        run.forward(0)
