"""What is fuzzed: each target reads one changed input, and raises if the result is not as promised."""

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from lib import PuzzleError, TraceError, referee, run, trace_from_json, trace_to_json
from lib.engine.replay.replay import replay
from lib.layout import DeviceMatrix, LayoutError, TensorLayout, complete
from lib.layout.examples import attention, boundary, embedding_and_head, feed_forward, megatron_mlp, one_matmul
from lib.profiles import study
from lib.profiles.studying import as_record
from puzzles.failure import sanitized
from puzzles.judge.judge import Definition, judge, run_judge
from puzzles.judge.session import SandboxRunner, Session
from puzzles.judge.submission import MAX_LINE_LENGTH, Submission
from puzzles.judge.verdict import STATUSES, Graded
from puzzles.sandbox import protocol
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.reading import SubmissionCode
from puzzles.screens.profiles import text_of as profile_text
from puzzles.tracks import ALL, track_of
from tests.support import CLASSICS
from tests.support import profiles as recorded

from .changes import changed_bytes, changed_tree

SOLUTIONS = Path(__file__).parents[2] / "solutions"

# --- Traces ---


@cache
def traces() -> list[tuple[Any, Any]]:
    """(trace, goal) of the classics that a replay takes little time for."""
    return [(run(classic.solution, *classic.size).trace, classic.goal) for classic in CLASSICS[:3]]


def trace(draw: Random) -> None:
    """A trace is read or refused; what the referee accepts has the weights of one device on real tensors."""
    true, goal = draw.choice(traces())
    try:
        if draw.random() < 0.8:
            text = json.dumps(changed_tree(draw, json.loads(trace_to_json(true))))
        else:
            words = (b"1e999999", b"NaN", b'"uses":[0]', b'"key":', b"[[", b"}")
            text = changed_bytes(draw, trace_to_json(true).encode(), words).decode(errors="replace")
        read = trace_from_json(text)
    except TraceError:
        return
    strict = referee(read, goal)
    assert strict.status in ("failed", "over_target", "passed")
    assert referee(read).error is None or strict.error is not None, "exploring allows what a puzzle does"
    if strict.error is None:
        assert replay(read, small=True).same_weights


# --- Submissions and notebooks ---

WORDS = (
    b"# coding: zlib\n", b"# %%\n", b"# +\n", b"# ---\n# jupyter:\n", b'"""', b"\\\n", b"\x00", b"\xff", b"\r", b"\t",
    b"async def basic(model):\n", b"%%bash\n", b"!ls \\\n", b"(" * 300, b"-" * 3000, b"lambda: " * 90, b"x = !ls\n",
    b"from lib import *\n", b"from solutions.basic import *\n", b"9" * 5000, b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x0c",
)  # fmt: skip


@cache
def sources() -> list[str]:
    return [(SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8") for slug in ("basic", "ddp", "layout/ffn")]


@cache
def notebook() -> dict[str, Any]:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in sources()]
    cells += [{"cell_type": "markdown", "metadata": {}, "source": ["# def basic(model)\n", "no code"]}]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3"}}, "cells": cells}


def submission(draw: Random) -> None:
    """A script, or one with marks of cells."""
    text = draw.choice((draw.choice(sources()), "# %%\n" + "\n# %% [markdown]\n# %%\n".join(sources())))
    _survey(draw, "mine.py", changed_bytes(draw, text.encode(), WORDS))


def ipynb(draw: Random) -> None:
    """A notebook with its tree changed, or its text."""
    if draw.random() < 0.5:
        source = json.dumps(changed_tree(draw, notebook())).encode()
    else:
        source = changed_bytes(draw, json.dumps(notebook()).encode(), (*WORDS, b"{", b"]", b'"source": 7,', b"1e999"))
    _survey(draw, "mine.ipynb", source)


def _survey(draw: Random, name: str, source: bytes) -> None:
    """What the grader and the sandbox do with a file before anything runs."""
    given = Submission(Path(name), source)
    given.looks_defined("basic")
    if given.failure is not None:
        _require_sentence(given.failure.sentence)
        return
    code = SubmissionCode(**given.as_given(), slugs=list(ALL))
    survey = json.loads(json.dumps(code.survey()))
    assert (code.code is None) == (code.problem is not None)
    for failure in filter(None, (survey["problem"], *survey["broken"].values())):
        _require_sentence(failure[1])
    given.cells = code.cells
    for slug, line in survey["lines"].items():
        assert line >= 1
        assert given.placed(f"line {line}")
        if slug in survey["sketches"]:
            shown = given.line(line)
            assert slug in shown or shown.startswith("@") or len(shown) == MAX_LINE_LENGTH, (slug, line, shown)


def _require_sentence(text: str) -> None:
    assert text
    assert text == sanitized(text)
    assert len(text) < 3000


# --- Annotations ---

GRAPHS = (one_matmul, feed_forward, megatron_mlp, attention, embedding_and_head, boundary)
MATRICES = ((8,), (2, 4), (4, 2), (2, 2, 2), (1, 8), (8, 1), (3,), (4,), (2, 2), ())


def annotations(draw: Random) -> None:
    """Annotations are completed to a plan that keeps them, or refused."""
    graph = draw.choice(GRAPHS)()
    matrix = draw.choice(MATRICES)
    given: dict[str, TensorLayout] = {}
    try:
        for _ in range(draw.randint(1, 4)):
            name = draw.choice([*graph.shapes, *graph.shapes, "nothing"])
            shape = graph.shapes.get(name, (8, 8))
            axes = [*range(len(matrix))]
            draw.shuffle(axes)
            places = [draw.choice([(), (), *[(axis,) for axis in axes], tuple(axes), (9,)]) for _ in shape]
            if draw.random() < 0.1:
                shape = draw.choice([(), (0, 0), (2**40,) * len(shape), (*shape, 1), shape[:1]])
            given[name] = TensorLayout(shape, DeviceMatrix(matrix), tuple(places), draw.choice([(), (), (0,)]))
            matrix = draw.choice(MATRICES) if draw.random() < 0.1 else matrix
        done = complete(graph, given)
    except LayoutError as why:
        _require_sentence(str(why))
        return
    for name, layout in given.items():
        kept = done.layouts[name]
        assert [kept.box(d) for d in range(graph.devices)] == [layout.box(d) for d in range(graph.devices)]
    assert done.plan.explain()


# --- Forged replies ---

REPLYING = ("basic", "ddp", "DataParallel", "ffn")


class Recorded:
    """A session that replies what an honest one replied, changed."""

    limits = Limits()

    def __init__(self, survey: Mapping[str, Any], answers: list[dict[str, Any]], draw: Random) -> None:
        self.survey = survey
        self.answers = iter([*answers, *answers[-1:] * 20])
        self.draw = draw

    def read(self) -> Mapping[str, Any]:
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        answer = dict(next(self.answers))
        chance = self.draw.random()
        if chance < 0.7:
            row = changed_tree(self.draw, json.loads(answer["result"]))
            if isinstance(row, dict) and isinstance(row.get("trace"), str) and self.draw.random() < 0.7:
                with suppress(ValueError):
                    row["trace"] = json.dumps(changed_tree(self.draw, json.loads(row["trace"])))
            answer["result"] = json.dumps(row)
        elif chance < 0.9:
            words = (b'{"defined": true}\n', b"\n", b'"failure": ["passed", "", 0]', b"NaN", b"[" * 2000, b"1e999")
            text = changed_bytes(self.draw, answer["result"].encode(), words)
            answer["result"] = text.decode(errors="replace")
        if self.draw.random() < 0.2:
            answer["ended"] = self.draw.choice(("exit", "time", "output", "result", "signal"))
            answer["code"] = self.draw.choice((0, 1, 9, 11, 64))
        if self.draw.random() < 0.2:
            answer["output"] = "\x1b[2J\x00\u2028" * self.draw.randint(1, 400)
        return answer


@cache
def honest(slug: str) -> tuple[Mapping[str, Any], list[dict[str, Any]], str]:
    """The survey and the replies of the reference, from the real sandbox; and its status."""
    folder = SOLUTIONS / {"schedule": ".", "engine": "engine", "layout": "layout"}[track_of(slug).name]
    name = {"DataParallel": "data_parallel"}.get(slug, slug)
    answers: list[dict[str, Any]] = []
    with Session(Submission.read(folder / f"{name}.py")) as session:
        ask = session.run

        def listen(request: dict[str, Any], left: float) -> dict[str, Any]:
            answers.append(ask(request, left))
            return answers[-1]

        session.run = listen  # type: ignore[method-assign]
        puzzle = track_of(slug).puzzle(slug)
        verdict = run_judge(judge(puzzle, Definition()), SandboxRunner(session, track_of(slug), slug))
        return session.read(), answers, verdict.status


def reply(draw: Random) -> None:
    """A worker may send anything: there is always a valid verdict."""
    slug = draw.choice(REPLYING)
    survey, answers, status = honest(slug)
    assert status == "passed", slug
    track = track_of(slug)
    session: Any = Recorded(survey, answers, draw)
    verdict = run_judge(judge(track.puzzle(slug), Definition(), keep=True), SandboxRunner(session, track, slug))
    assert verdict.status in STATUSES
    assert 0 <= verdict.stars <= 3
    assert (verdict.status == "failed") == bool(verdict.reason)
    for text in (verdict.message, *verdict.notes, *verdict.printed):
        assert text == sanitized(text), text[:200]
        assert len(text) < 5000
    row = Graded("mine.py", (verdict,)).row()
    assert Graded.of_row(json.loads(json.dumps(row))).row() == row, "a checkpoint keeps it"


def message(draw: Random) -> None:
    """The protocol between a client and its server: a message, the end, or a ValueError."""
    stream = io.BytesIO()
    protocol.send(stream, {"ended": "exit", "code": 0, "result": "x" * 40, "cells": [[1, "é"]]})
    data = changed_bytes(draw, stream.getvalue() * 2, (b"ffffffff", b"-0000001", b"0x000001", b"{}", b"[]", b"\xff"))
    changed = io.BytesIO(data)
    try:
        while (found := protocol.receive(changed, 1 << 20)) is not None:
            assert isinstance(found, dict)
    except (ValueError, RecursionError):
        pass


# --- Profiles ---


@cache
def profiled() -> list[dict[str, Any]]:
    """The traces of a small pipeline: of each cell, its annotation and its first and last operation."""
    found = recorded.traces("1f1b_annotated")
    for one in found:
        cells = recorded.events(one, lambda event: event["name"].startswith(("PP:", "ProfilerStep#")))
        ops = recorded.events(one, lambda event: event["name"] in ("Nap", "aten::mm", "NapBackward"))
        one["traceEvents"] = cells + ops
    return found


@cache
def dumped() -> dict[str, Any]:
    """The files of an event dump of two ranks."""
    rows = (("fwd", [0, 1], [1, 2], "bwd", [3, 6], [5, 8]), ("fwd", [1, 3], [2, 4], "bwd", [2, 4], [3, 6]))
    files: dict[str, Any] = {"config.json": {"pp_size": 2, "vp_size": None, "num_mbs": 2}}
    for rank, row in enumerate(rows):
        lists = {f"{row[at]}_{side}": row[at + n] for at in (0, 3) for n, side in ((1, "start"), (2, "end"))}
        files[f"pp_rank_{rank}.json"] = {"1": {**lists, "total": 9.5}}
    return files


def profile(draw: Random) -> None:
    """Traces and dumps are read to a report, or refused in one line."""
    found: list[Any] = list(profiled())
    names = [f"rank{n}.json" for n in range(len(found))]
    if draw.random() < 0.3:
        names, found = list(dumped()), list(dumped().values())
    rank = draw.randrange(len(found))
    files = [recorded.source(name, json.dumps(one).encode()) for name, one in zip(names, found)]
    match draw.randrange(4):
        case 0:
            data = changed_bytes(draw, json.dumps(found[rank]).encode(), (b"1e999", b"NaN", b"[[", b'"ts":', b"}"))
        case 1:
            data = draw.choice((b"\x1f\x8b", b"", b"{")) + draw.randbytes(draw.choice((0, 1, 10, 1000)))
        case 2:
            data = json.dumps(changed_tree(draw, [{"traceEvents": []}, 5])).encode()
        case _:
            data = json.dumps(changed_tree(draw, found[rank])).encode()
    files[rank] = recorded.source(names[rank], data)
    try:
        said = study(files)
        assert profile_text(said)
        assert json.loads(json.dumps(as_record(said)))["version"]
    except PuzzleError as why:
        _require_sentence(str(why).replace("\n", "\x1b"))  # one line


TARGETS: Mapping[str, Callable[[Random], None]] = {
    target.__name__: target for target in (trace, submission, ipynb, annotations, reply, message, profile)
}
