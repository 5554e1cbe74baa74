"""What the engine refuses, on every transport: invalid arguments, calls that differ, waits without end, masked arrays.

A class may catch the refusal of its own argument and go on. A refusal that concerns several devices ends the run.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from lib import DeadlockError, MismatchError, PuzzleError, RuleError
from lib.engine import ShardedEngine, launch
from lib.engine.engine import MemoryTier
from tests.oracles.collective_arrays import N

from .script import PATIENCE, Script, on_each, refusal_of, refused

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
    "text": (lambda me, x: me.all_reduce(np.array(["a"])), "an array of dtype <U1 cannot be sent; convert"),
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
        "all_reduce(): give devices as a list, such as [0, 1]; got 2",
    ),
    "a group without order": (
        lambda me, x: me.all_reduce(x, group={0, 1, 2, 3}),
        "give devices as a list, because their order matters; got the set {0, 1, 2, 3}",
    ),
    "a group of halves": (lambda me, x: me.all_reduce(x, group=[0.5]), "such as [0, 1]; got [0.5]"),
    "a number as a shape": (
        lambda me, x: me.send(1, np.empty((4_000_000_000, 0))),
        "send(1): an array of float64 (4000000000, 0) is empty, so only its shape would be sent, which no meter counts",
    ),
    "a number as a width": (lambda me, x: me.send(1, np.empty(0, "S70000")), "dtype |S70000 cannot be sent"),
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
"""Invalid arguments: what a device does, given an array of four ones, and what it is told."""


def refusals(on: str) -> None:
    for does, words in REFUSALS.values():
        text = refused(on, does, np.ones(4))
        assert text.startswith("RuleError: device "), text
        assert words in text, text


def caught_refusals(on: str) -> None:
    """The class goes on, and its meter has counted nothing for the refused call."""
    for what, (does, _) in REFUSALS.items():

        def goes_on(me: Any, x: Any, does: Callable[..., Any] = does) -> Any:
            caught = False
            try:
                does(me, x)
            except RuleError:
                caught = True
            return [caught, *me.all_reduce(x).tolist()]

        with launch(Script, N, goes_on, on=on, metered=True, patience=PATIENCE) as run:
            caught, *sums = zip(*run.forward(np.ones(4)))
            assert any(caught), what
            assert sums == [(4.0,) * N] * 4, what
            assert all("send" not in reading.calls and "send_async" not in reading.calls for reading in run.meters), (
                what
            )


def _differ(one: Callable[[Any, Any], Any], others: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda me, x: one(me, x) if me.device_id == 1 else others(me, x)


ONES = "float64 (4,)"


def _all_reduce(me: Any, x: Any) -> Any:
    return me.all_reduce(x)


FATAL: dict[str, tuple[type[PuzzleError], Callable[[Any, Any], Any], str]] = {
    "names": (
        MismatchError,
        _differ(lambda me, x: me.all_gather(x), _all_reduce),
        f"1 calls all_gather({ONES}, axis=0)",
    ),
    "reductions": (
        MismatchError,
        _differ(lambda me, x: me.all_reduce(x, "max"), _all_reduce),
        f"1 calls all_reduce({ONES}, op='max')",
    ),
    "shapes": (
        MismatchError,
        _differ(lambda me, x: me.all_reduce(x[:2]), _all_reduce),
        "1 calls all_reduce(float64 (2,), op='sum')",
    ),
    "dtypes": (
        MismatchError,
        _differ(lambda me, x: me.all_reduce(x.astype("f4")), _all_reduce),
        "1 calls all_reduce(float32 (4,), op='sum')",
    ),
    "groups": (
        MismatchError,
        _differ(lambda me, x: me.all_reduce(x, group=[0, 1]), _all_reduce),
        "op='sum') in group (0, 1)",
    ),
    "kinds": (MismatchError, _differ(lambda me, x: me.barrier(), _all_reduce), "1 calls barrier()"),
    "buffers": (MismatchError, lambda me, x: me.symmetric(3 + (me.device_id == 1)), "1 calls symmetric(float32 (4,))"),
    "pairs": (
        MismatchError,
        lambda me, x: me.all_reduce(x[: 2 + me.device_id % 2], group=[0, 1]) if me.device_id < 2 else me.barrier(),
        "1 calls all_reduce(float64 (3,), op='sum')",
    ),
    "messages": (
        DeadlockError,
        lambda me, x: me.receive((me.device_id + 1) % N),
        "device 3 waits in receive(0), line ",
    ),
    "absence": (DeadlockError, lambda me, x: me.barrier() if me.device_id else None, "device 0 has returned"),
}
"""What devices do together that none can complete, by what differs or is missing; and words of the message."""


def _messages(me: Any, x: Any) -> None:
    me.send((me.device_id + 1) % N, x)
    me.receive((me.device_id - 1) % N)


AFTERWARDS: dict[str, Callable[[Any, Any], Any]] = {
    "returns": lambda me, x: None,
    "meets": _all_reduce,
    "meets alone": lambda me, x: me.all_reduce(x, group=[me.device_id]),
    "sends and receives": _messages,
    "synchronizes": lambda me, x: me.barrier(),
    "stores": lambda me, x: me.host.put("x", x),
}
"""What a class does after it has caught the error."""


def caught_errors_of_several_devices(on: str) -> None:
    """They end the run, whatever the class does afterwards; no later call returns."""
    afterwards = list(AFTERWARDS)
    for number, (what, (kind, does, words)) in enumerate(FATAL.items()):
        for after in afterwards if on == "inprocess" else afterwards[number % 6 :: 6 if kind is DeadlockError else 3]:
            went_on = []

            def tries(me: Any, x: Any, does: Any = does, after: str = after, went_on: list[str] = went_on) -> None:
                for _ in range(3):
                    try:
                        does(me, x)
                        return
                    except PuzzleError:
                        AFTERWARDS[after](me, x)
                        went_on.append(after)
                    except BaseException:  # a class that catches even what ends it
                        pass

            with launch(Script, N, tries, on=on, patience=PATIENCE) as run:
                text = refusal_of(lambda run=run: run.forward(np.ones(4)))  # type: ignore[misc]
                assert (text.startswith(f"{kind.__name__}: "), words in text) == (True, True), (what, after, text)
                ended = refusal_of(lambda run=run: run.forward(np.ones(4)))  # type: ignore[misc]
                assert f"It ended because of {text}" in ended, ended
            assert after in ("returns", "stores") or not went_on, (what, after)


def caught_in_a_stream(on: str) -> None:
    """An inference loop that catches such an error ends too, without an output made after it."""

    class Loop(Script):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            for number, x in enumerate(input_stream):
                try:
                    x = self.all_reduce(x[: 2 + (number > 1 and self.device_id % 2)])
                except PuzzleError:
                    x = x[:1]
                output_stream.write(x)

    with launch(Loop, N, None, on=on, patience=PATIENCE) as run:
        outputs = run.inference_loop(np.full(4, i) for i in range(9))
        got: list[Any] = []
        text = refusal_of(lambda: got.extend(outputs))
    assert text.startswith("MismatchError: "), text
    sums = [[i.tolist() for i in row] for row in got]
    assert sums == [[[4.0 * i] * 2] * N for i in range(2)][: len(sums)]
    assert len(sums) == (2 if on == "inprocess" else 0)  # on processes outputs come when all loops have ended


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "arr": lambda me: np.ones(4),
    "src": lambda me: np.ones(4),
    "dst": lambda me: me.symmetric(4, "f8"),
    "dest_id": lambda me: (me.device_id + 1) % N,
    "target_device_id": lambda me: (me.device_id + 1) % N,
    "name": lambda me: "w",
}
ARRAYS = ("arr", "src", "dst")


def _calls_with_arrays() -> list[tuple[str, str, list[str], str]]:
    """Every public call that takes an array: whose, its name, its required parameters, and which is the array."""
    return [
        (owner, name, [p.name for p in signature(function).parameters.values() if p.default is p.empty][1:], array)
        for owner, cls in (("", ShardedEngine), ("host", MemoryTier), ("disk", MemoryTier))
        for name, function in vars(cls).items()
        if not name.startswith("_") and callable(function)
        for array in ARRAYS
        if array in signature(function).parameters
    ]


def masked_arrays(on: str) -> None:
    """They are refused wherever an array enters, alone or in a list, because their mask would be lost unnoticed."""
    calls = _calls_with_arrays()
    assert len(calls) >= 9

    def does(me: Any, _: Any) -> list[str]:
        texts = []
        for owner, name, parameters, array in calls:
            given = {parameter: ARGUMENTS[parameter](me) for parameter in parameters}
            masked = np.ma.masked_array(given[array], [False, True, False, False])
            for one in (masked, [masked], [[1.0], (masked,)]):
                call = partial(getattr(getattr(me, owner) if owner else me, name), **{**given, array: one})
                text = refusal_of(call)
                texts.append((text, f"device {me.device_id} of {N}", name))
        return [
            text for text in texts if not (text[1] in text[0] and text[2] in text[0] and "arr.filled(0)" in text[0])
        ]

    assert on_each(on, does) == [[]] * N

    masked = np.ma.masked_array(np.ones(4), [0, 1, 0, 0])
    inputs: dict[str, Callable[[Any], Any]] = {
        "the input of forward": lambda run: run.forward(masked),
        "the input of backward": lambda run: run.backward([np.ones(4)] * (N - 1) + [{"x": (masked,)}]),
        "the input of load_checkpoint": lambda run: run.load_checkpoint({"w": masked}),
        "input 0 of the stream": lambda run: list(run.inference_loop([masked])),
    }
    for place, call in inputs.items():
        with launch(Script, N, lambda me, x: x, on=on, patience=PATIENCE) as run:
            text = refusal_of(lambda run=run, call=call: call(run))  # type: ignore[misc]
            assert text.startswith(f"RuleError: {place}: this array is masked"), text
    results = (
        "device 2 of 4, the result of forward: this array is masked, and its mask would be lost; pass arr.filled(0)"
    )
    assert results in refused(on, lambda me, x: {"y": masked} if me.device_id == 2 else x)
    with launch(Script, N, lambda me, x: np.ma.masked_less(x, 1), on=on, patience=PATIENCE) as run:
        text = refusal_of(lambda: list(run.inference_loop([np.arange(3)])))
        assert ", write(): this array" in text, text
