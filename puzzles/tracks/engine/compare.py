"""Compares the results of a trial with a single device's results, and names the first number that differs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.values.algebra import counted
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.sandbox.plain_data import Foreign


def require_right(trial: Trial, performed: Performed) -> None:
    for call, results in zip(trial.calls, performed.results):
        for device, (result, right) in enumerate(zip(results, call.wanted or ())):
            try:
                compare(result, right, f"device {device}, {call.method}()", trial.tolerance)
            except WrongResultError as why:
                known = [words for words, made in call.mistakes.items() if _is(result, made[device], trial.tolerance)]
                words = known or [_operation(result, right, trial) or _unsummed(results, right, trial)]
                raise WrongResultError("; ".join(filter(None, [str(why), *words, trial.about]))) from None
    if trial.stream is not None:
        inputs, outputs = trial.stream
        got = performed.outputs
        if len(got) != len(outputs):
            raise WrongResultError(
                f"got {counted(len(got), 'output')} for {counted(len(inputs), 'input')}; one device writes one for each"
            )
        for i, (result, right) in enumerate(zip(got, outputs)):
            compare(result, right, f"output {i}", trial.tolerance)
    if trial.check is not None:
        trial.check(performed)


def compare(result: Any, right: Any, where: str, tolerance: float = 0.0) -> None:
    """Checks that shapes, names and every number are equal, or as near as `tolerance` allows."""
    if right is None:
        if result is not None:
            raise WrongResultError(f"{where} should return None; it returned {_described(result)}")
        return
    if isinstance(right, dict):
        if not isinstance(result, dict) or set(result) != set(right):
            raise WrongResultError(
                f"{where} should return a dictionary of {', '.join(right)}; it returned {_described(result)}"
            )
        for name in right:
            compare(result[name], right[name], f"{where}, '{name}'", tolerance)
        return
    if not isinstance(result, np.ndarray) or result.shape != right.shape:
        raise WrongResultError(f"{where} should be an array of shape {right.shape}; it is {_described(result)}")
    with np.errstate(all="ignore"):
        allowed = tolerance * np.abs(right).max(initial=0)
        near = result == right if not tolerance else np.abs(result - right) <= allowed
    if not near.all():
        place = tuple(int(i[0]) for i in np.nonzero(~near))
        at = ", ".join(map(str, place))
        finite = result.dtype.kind not in "fc" or np.isfinite(result[place])
        cause = "" if finite else " (an overflow of its dtype, or a division by 0)"
        raise WrongResultError(
            f"{where} differs from what a single device computes: at [{at}] it is {_number(result[place])}{cause} "
            f"and should be {_number(right[place])}"
        )


def _operation(result: Any, right: Any, trial: Trial) -> str:
    """Names the mistake if all wrong arrays are too small or too large by the number of devices."""
    n = trial.devices
    if isinstance(right, dict):
        pairs = [(result.get(name), right[name]) for name in right] if isinstance(result, dict) else []
        wrong = [pair for pair in pairs if not _is(*pair, trial.tolerance)]
        found = {_operation(*pair, trial) for pair in wrong}
        return found.pop() if len(found) == 1 else ""
    if not isinstance(result, np.ndarray) or n == 1 or not isinstance(right, np.ndarray) or not right.any():
        return ""
    if result.dtype.kind in "fiuc" and _is(result * n, right, trial.tolerance * n):
        return f"this is the average of {n} devices, and should be the sum: is an op 'avg', or a sum divided by {n}?"
    if result.dtype.kind in "fiuc" and _is(result, right * n, trial.tolerance):
        return f"this is {n} times too large: do {n} devices add up what is already the sum?"
    return ""


def _unsummed(results: Sequence[Any], right: Any, trial: Trial) -> str:
    """Names the mistake if the results of all devices add up to the right one."""
    if isinstance(right, dict):
        alike = all(isinstance(result, dict) and set(result) == set(right) for result in results)
        names = [name for name in right if not _is(results[0][name], right[name], trial.tolerance)] if alike else []
        found = {_unsummed([result[name] for result in results], right[name], trial) for name in names}
        return found.pop() if len(found) == 1 else ""
    if len(results) < 2 or not all(isinstance(r, np.ndarray) and r.shape == np.shape(right) for r in results):
        return ""
    if any(result.dtype.kind not in "fiuc" for result in results):
        return ""
    if not _is(np.sum(results, axis=0), right, trial.tolerance * len(results)):
        return ""
    return f"the sum over the {len(results)} devices is right: sum what each device computes, as `all_reduce` does"


def _number(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind in "fiuc" else str(value)


def _is(result: Any, made: Any, tolerance: float) -> bool:
    try:
        compare(result, made, "", tolerance)
    except WrongResultError:
        return False
    return True


def _described(result: Any) -> str:
    if isinstance(result, Foreign):
        return f"of type {result.what}"
    if isinstance(result, np.ndarray):
        return f"one of shape {result.shape}"
    if isinstance(result, dict):
        return f"one of {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"of type {type(result).__name__}"
