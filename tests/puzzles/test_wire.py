"""The wire between the devices of a class: each known way to tell another device something uncounted is closed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lib.engine.metering.meter import Meter
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.worker.devices.device_port import DeviceMeter, repeat
from tests.support import hostile_wire as wire
from tests.support.engine_trials import perform
from tests.support.graders import USERS, Grader
from tests.support.selection import some_of_each

SOLUTION = (Path(__file__).parents[2] / "solutions/engine/data_parallel.py").read_text(encoding="utf-8")


def verdict(statement: str) -> Verdict:
    source = wire.with_words(SOLUTION, statement)
    with Session(Submission(Path("theirs.py"), source.encode())) as session:
        return grade_puzzle(ENGINE_PUZZLES["DataParallel"], session)


@pytest.mark.sampled(2)
@some_of_each(wire.ENDINGS)
def test_no_device_reads_why_the_run_ends(name: str) -> None:
    found = verdict(wire.caught(wire.ENDINGS[name]))
    assert (found.reason, found.stars) == ("mismatch", 0), found
    assert "device 0 calls" in found.message
    assert found.line  # of the call, as without the judge


def test_no_device_is_told_a_clock() -> None:
    found = verdict(wire.CLOCK)
    assert "Told" not in found.message, found
    assert found.figures["flops"] == 20_480, "what its operations need"


@pytest.mark.sampled(1)
@some_of_each(wire.PLACES)
def test_a_put_goes_into_a_buffer(name: str) -> None:
    buffer, strides, offset, words = wire.PLACES[name]
    found = verdict(wire.put(buffer, strides, offset))
    assert (found.status, found.stars) == ("failed", 0), found
    assert "device 0 of 4" in found.message
    assert words in found.message


@pytest.mark.sampled(1)
@some_of_each(wire.FORMS)
def test_a_put_is_of_elements_of_its_buffer(name: str) -> None:
    buffer, strides, offset, content = wire.FORMS[name]
    found = verdict(wire.put(buffer, strides, offset, content))
    assert (found.status, found.stars) == ("failed", 0), found
    assert wire.OUTSIDE in found.message


@pytest.mark.sampled(1)
@some_of_each(wire.COSTS)
def test_what_a_message_tells_is_charged(name: str) -> None:
    """On the wire, and the same in one process."""
    statement, cost = wire.COSTS[name]
    assert verdict(wire.priced(statement)).figures["sent"] == 12_288 + cost
    names: dict[str, Any] = {}
    exec(wire.with_words(SOLUTION, wire.priced(statement)), names)
    done = perform(trials_of(ENGINE_PUZZLES["DataParallel"])[0](), names["DataParallel"])
    assert done.readings[-1][0].sent == 12_288 + cost


@pytest.mark.sampled(1)
@some_of_each(wire.TYPES)
def test_a_dtype_is_one_of_a_short_list(name: str) -> None:
    """Both by the public call, and written to the wire as it is."""
    array = f"np.zeros(1, np.dtype('{wire.TYPES[name]}'))"
    for call in (f"self.send(1, {array})", f"self._port.channel.send('send', [], 1, {array})"):
        found = verdict(f"if self.device_id == 0:\n            {call}")
        assert (found.status, found.stars) == ("failed", 0), found
        assert "cannot be sent; convert it with astype" in found.message, found


@pytest.mark.skipif(os.name != "posix" or os.uname().machine != "x86_64", reason="the numbers of its system calls")
@pytest.mark.sampled(2)
@some_of_each(wire.PROCESSES)
def test_devices_see_no_process_beside_them(name: str) -> None:
    found = verdict(wire.seen(wire.PROCESSES[name]))
    assert (found.status, found.stars) == ("passed", 3), found


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.uname().machine != "x86_64", reason="the numbers of its system calls")
@pytest.mark.parametrize("user", USERS)
def test_whoever_grades(user: str) -> None:
    """All of it, in turn, as root and as an ordinary user."""
    grader = Grader(user)
    try:
        grader.require_packages()
        for name, statement in wire.PROCESSES.items():
            (found,) = grader.grade(wire.with_words(SOLUTION, wire.seen(statement)))
            assert found.passed(), (name, found)
        for name, statement in wire.ENDINGS.items():
            (found,) = grader.grade(wire.with_words(SOLUTION, wire.caught(statement)))
            assert found.reason == "mismatch", (name, found)
        for name, (buffer, strides, offset, content) in wire.FORMS.items():
            (found,) = grader.grade(wire.with_words(SOLUTION, wire.put(buffer, strides, offset, content)))
            assert wire.OUTSIDE in found.message, (name, found)
        for name, (statement, cost) in wire.COSTS.items():
            (found,) = grader.grade(wire.with_words(SOLUTION, wire.priced(statement)))
            assert f"bytes sent {12_288 + cost:,}, and" in found.message, (name, found)
        (found,) = grader.grade(wire.with_words(SOLUTION, wire.CLOCK))
        assert "Told" not in found.message, found
    finally:
        grader.close()


def test_steps_give_the_clock_that_the_device_would_have() -> None:
    device, judge = DeviceMeter(), Meter({"host": 3, "disk": 5})
    device.byte_time = judge.byte_time
    for _ in range(3):
        first, second = device.transfer("host", 10), device.transfer("disk", 4)
        device.compute(7)
        device.compute(1)
        device.wait_for(second)
        device.wait_for(first)
        steps = [list(step) for step in device.taken()]
        assert ["compute", 8] in steps
        repeat([tuple(step) for step in steps], judge)
        assert judge.clock == device.clock > 0


@pytest.mark.parametrize(
    "steps", [7, None, [7], [("compute", -1)], [("compute", True, 1)], [("wait", 0)], [("wait", -1)], [("tape", 1)]]
)
def test_steps_that_no_meter_writes(steps: object) -> None:
    with pytest.raises(ValueError, match="do not come from a meter"):
        repeat(steps, Meter())


def test_a_clock_has_an_end() -> None:
    with pytest.raises(ValueError, match="not a number"):
        repeat([("compute", 1 << 62)], Meter())


def test_a_device_imports_what_its_functions_name() -> None:
    """Files are gone by then, so it is imported before: a module, a module of a package, and what numpy loads late."""
    statement = "import difflib, xml.dom.minidom\n        from concurrent import futures\n        np.fft.fftfreq(1)"
    found = verdict(f"{statement}\n        futures.Future(), np.ma.array([1])")
    assert (found.status, found.stars) == ("passed", 3), found


@pytest.mark.slow
def test_a_device_cannot_keep_its_files() -> None:
    """They are gone before the first line of the class's file is run."""
    patched = "import puzzles.sandbox.worker.seccomp as s\ns.seal = s.restrict_device = lambda *_: None\n"
    source = patched + wire.with_words(SOLUTION, "tells(exists('/') or exists(os.__file__))")
    with Session(Submission(Path("theirs.py"), source.encode())) as session:
        found = grade_puzzle(ENGINE_PUZZLES["DataParallel"], session)
    assert "Told" not in found.message, found
