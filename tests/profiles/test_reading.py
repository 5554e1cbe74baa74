"""Reading: a trace says the same whatever its clocks, GPUs, writers and names; the unreadable is refused in a line."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lib import PuzzleError
from lib.pipelines import Timetable, interleaved, zb_h1
from lib.profiles import Shares, Source, Study, read_rules, sources_of, study
from lib.profiles.gathered import Order, replayed
from lib.profiles.reading import json_of
from tests.support.commands import puzzles
from tests.support.profiles import TRACES, Trace, events, moved, restudied, source, sources, studied, traces
from tests.support.refusals import Refused

# === Clocks, GPUs, writers and names ===


SKEWS = (0.0, 30.0, -12.0, 200.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["1f1b_slow", "interleaved", "zbv"])
def test_clocks_that_are_off_are_moved_back(case: str) -> None:
    found, before = restudied(moved(traces(case), SKEWS)), studied(case)
    clocks = found.chosen.step.clocks
    for offset, skew in zip(clocks.offsets, SKEWS, strict=True):
        assert offset == pytest.approx(-skew, abs=1.0)
    assert 0 < clocks.doubt < 1.0
    assert found.name == before.name
    assert [row.held for row in found.stages] == [row.held for row in before.stages]
    assert found.chosen.step.length == pytest.approx(before.chosen.step.length, abs=2.0)
    assert found.chosen.bubble == pytest.approx(before.chosen.bubble, abs=0.01)
    for one, other in zip(found.ladder, before.ladder, strict=True):
        assert one.ms == pytest.approx(other.ms, abs=4 * len(SKEWS) * clocks.doubt)
    kinds = [(one.kind, one.rank) for one in found.findings if one.kind != "host"]
    assert kinds == [(one.kind, one.rank) for one in before.findings if one.kind != "host"]


def test_collectives_end_together_on_hosts_with_other_clocks() -> None:
    found = study(sources(moved(traces("ddp"), SKEWS)))
    assert isinstance(found, Shares)
    assert found.waited_for.keys() == {2}
    assert any("Clocks are moved" in note for note in found.notes)


def on_gpu(trace: Trace, late: float) -> Trace:
    """A trace as of a GPU: each operation within a cell is a launch at the start of the cell's annotation, that of a
    backward on another thread, and a kernel where the operation ran; the host is ahead by `late` ms."""
    made: list[dict[str, Any]] = []
    number = 0
    cells = events(trace, lambda event: event["name"].startswith("PP:"))
    ops = events(trace, lambda event: event["cat"] == "cpu_op" and not event["name"].startswith("c10d::"))
    for cell in cells:
        inside = [op for op in ops if cell["ts"] <= op["ts"] < cell["ts"] + cell["dur"]]
        for place, op in enumerate(inside):
            number += 1
            tid = 99 if "B" in cell["name"] or "I" in cell["name"] or "W" in cell["name"] else cell["tid"]
            launch = {"ts": cell["ts"] + 0.01 * place, "dur": 0.01, "pid": cell["pid"], "tid": tid}
            made.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number}} | launch
            )
            kernel = {"ts": op["ts"] + 1e3 * late, "dur": op["dur"], "pid": 0, "tid": 7}
            made.append({"ph": "X", "cat": "kernel", "name": "gemm", "args": {"correlation": number}} | kernel)
    spin = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 9}
    marks = events(trace, lambda event: event["cat"] == "user_annotation")
    first = min(event["ts"] for event in marks)
    return trace | {"traceEvents": [*marks, *made, spin | {"ts": first, "dur": 5e5, "args": {"correlation": 1}}]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["interleaved", "zbv"])
def test_cells_of_a_gpu_are_those_of_its_kernels(case: str) -> None:
    found = restudied([on_gpu(trace, late=40.0) for trace in traces(case)])
    before = studied(case)
    assert found.chosen.step.table == before.chosen.step.table  # an empty 0I0 keeps its place in the order
    assert found.name == before.name
    for mine, theirs in zip(found.chosen.step.spans, before.chosen.step.spans, strict=True):
        for span, other in zip(mine, theirs, strict=True):
            if other.length:
                assert span.start == pytest.approx(other.start, abs=1e-3)
                assert span.end == pytest.approx(other.end, abs=1e-3)
                assert 0 < span.busy < span.length
    assert found.gathered.profiles[0].kind == "PyTorch GPU trace"
    assert any(shares.gaps > 0 for shares in found.chosen.ranks)


def test_a_gpu_without_cells_has_the_kernels_of_its_collectives() -> None:
    def rank(number: int, busy: float) -> Trace:
        kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
        args = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]"}
        return {
            "distributedInfo": {"rank": number, "world_size": 2},
            "host_name": "node",
            "traceEvents": [
                kernel | {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 1e5},
                kernel | {"name": "gemm", "ts": 0, "dur": 1e3 * busy},
                kernel | {"name": "ncclAllReduce", "tid": 9, "ts": 1e3 * busy, "dur": 1e3 * (90 - busy), "args": args},
            ],
        }  # fmt: skip

    found = study(sources([rank(0, 30), rank(1, 80)]))
    assert isinstance(found, Shares)
    assert found.waited_for == {1: pytest.approx(50)}
    assert [one.communication for one in found.ranks] == [pytest.approx(10)] * 2


def test_times_since_1970_and_without_a_base() -> None:
    found = traces("1f1b_annotated")
    base = {trace.pop("baseTimeNanoseconds") for trace in found}.pop()
    for trace in found:
        for event in events(trace, lambda event: True):
            event["ts"] += base / 1e3
    assert restudied(found).chosen.step.length == pytest.approx(studied("1f1b_annotated").chosen.step.length, abs=0.01)


def test_other_names_by_a_file() -> None:
    found = traces("1f1b_annotated")
    for trace in found:
        for event in events(trace, lambda event: event["name"].startswith("PP:")):
            stage, op, batch = event["name"][3], event["name"][4], event["name"][5:]
            event["name"] = f"stage{stage} {'fwd' if op == 'F' else 'bwd'} mb{batch}"
    rules = r"""
        [[cell]]
        match = 'stage(?P<stage>\d+) fwd mb(?P<batch>\d+)'
        op = "F"
        [[cell]]
        match = 'stage\d+ bwd .*'
        op = "B"
    """
    again = restudied(found, rules=read_rules(rules, "names.toml"))
    assert again.chosen.step.table == studied("1f1b_annotated").chosen.step.table
    assert again.chosen.step.spans == studied("1f1b_annotated").chosen.step.spans


def test_chunks_by_a_file_and_places_of_ranks() -> None:
    found = traces("interleaved")
    for trace in found:
        for event in events(trace, lambda event: event["name"].startswith("PP:") and event["name"][4] in "FB"):
            stage, op, batch = event["name"][3], event["name"][4], event["name"][5:]
            event["name"] = f"chunk {int(stage) // 4} {op} {batch}"
    rules = read_rules("[[cell]]\nmatch = 'chunk (?P<chunk>\\d) (?P<op>[FB]) (?P<batch>\\d+)'", "names.toml")
    assert restudied(found, rules=rules).chosen.step.table == studied("interleaved").chosen.step.table


def test_replicas_are_read_alone_and_the_slowest_is_shown() -> None:
    found = traces("1f1b_annotated") + traces("1f1b_slow")
    for rank, trace in enumerate(found):
        info = trace["distributedInfo"]
        info["rank"], info["world_size"] = rank, 8
    again = restudied(found)
    assert [one.ranks for one in again.gathered.steps] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert again.chosen.step.ranks == (4, 5, 6, 7)
    assert again.findings[0].rank == 6
    for rank, trace in enumerate(found):  # one pipeline has the even ranks, if the groups say so
        group = {"pg_desc": "mesh_pp", "ranks": [0, 2, 4, 6] if rank % 2 == 0 else [1, 3, 5, 7]}
        trace["distributedInfo"]["pg_config"] = [group]
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    for rank, place in enumerate(order):
        found[place]["distributedInfo"] |= {"rank": rank}
        pair = [0, 2, 4, 6] if rank % 2 == 0 else [1, 3, 5, 7]
        found[place]["distributedInfo"]["pg_config"] = [{"pg_desc": "mesh_pp", "ranks": pair}]
    again = restudied([found[place] for place in order])
    assert [one.ranks for one in again.gathered.steps] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert again.chosen.step.ranks == (1, 3, 5, 7)


def test_some_ranks_alone_have_shares_without_causes() -> None:
    found = study(sources(traces("1f1b_annotated")[:2]), only={0, 1})
    assert isinstance(found, Shares)
    for one, other in zip(found.ranks, studied("1f1b_annotated").chosen.ranks):
        assert one.computing == pytest.approx(other.computing)
        assert one.computing + one.idle == pytest.approx(one.length)
    assert "not all ranks" in found.notes[0]


def dump(table: Timetable, chunks: int, named: bool, skew: Mapping[int, float]) -> Iterator[Source]:
    """An event dump of a replay."""
    lengths = {"F": 10.0, "B": 20.0, "I": 11.0, "W": 9.0}
    times = replayed(Order(table), lambda rank, at: lengths[table.rows[rank][at][0].op], message=0.5)
    config = {"pp_size": table.ranks, "vp_size": chunks if chunks > 1 else None, "num_mbs": table.batches}
    yield source("config.json", json.dumps(config).encode())
    for rank, row in enumerate(table.rows):
        step: dict[str, Any] = {"total": 1000.0, "memory": 5.0}
        for ((stage, op, batch),), (start, end) in zip(row, times[rank]):
            word = {"F": "fwd", "B": "bwd", "I": "bwd", "W": "wgrad"}[op]
            entry = {"start": start + skew.get(rank, 0), "end": end + skew.get(rank, 0)}
            entry |= {"minibatch": batch, "chunk": stage // table.ranks} if named else {}
            for side, value in entry.items():
                step.setdefault(f"{word}_{side}", []).append(value)
        yield source(f"pp_rank_{rank}.json", json.dumps({"1": step, "2": step}).encode())


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("skew", [{}, {1: 300.0, 3: -80.0}])
def test_dumps_of_a_replay_are_read_back(named: bool, skew: Mapping[int, float]) -> None:
    table = interleaved(4, 8, 2)
    found = study([*dump(table, 2, named, skew)])
    assert isinstance(found, Study)
    assert found.chosen.step.table == table
    assert found.name.text == "interleaved 1F1B"
    assert len(found.steps) == 2
    for row in found.stages:
        assert (row.times["F"].median, row.times["B"].median) == (pytest.approx(10), pytest.approx(20))
    assert all(not one.clocks.are_kept for one in found.gathered.steps) == bool(skew)
    for offset, rank in zip(found.chosen.step.clocks.offsets, range(4)):
        assert offset == pytest.approx(skew.get(0, 0) - skew.get(rank, 0), abs=1.0)


def test_dumps_with_halves() -> None:
    found = study([*dump(zb_h1(4, 8), 1, True, {})])
    assert isinstance(found, Study)
    assert found.name.text == "ZB-H1"
    assert found.stages[2].times["W"].median == pytest.approx(9)
    assert found.prospect.bound is not None
    assert found.prospect.bound.has_halves


# === Files that cannot be read ===


def refusal(found: list[Trace], **options: Any) -> PuzzleError:
    with pytest.raises(PuzzleError) as why:
        study(sources(found), **options)
    assert "\n" not in str(why.value)
    return why.value


def test_a_file_that_was_cut_off() -> None:
    data = (TRACES / "1f1b" / "rank2.json.gz").read_bytes()
    with Refused("cut off", file="rank2.json.gz"):
        json_of(source("rank2.json.gz", data[:5000]))
    text = gzip.decompress(data)[:61139]
    with Refused("ends within trace", file="rank2.json", at=61139):
        json_of(source("rank2.json", text))
    with pytest.raises(PuzzleError, match="gzip cannot unpack it"):
        json_of(source("rank2.json", data[:400] + bytes(400) + data[800:]))


def test_what_is_packed_is_told_by_the_bytes_and_counted_while_unpacking() -> None:
    packed = gzip.compress(json.dumps({"traceEvents": [" " * 5_000_000]}).encode())
    assert json_of(source("rank0.json", packed)).keys() == {"traceEvents"}
    with Refused("too much", file="rank0.json", too_many="0.003 GB unpacked"):
        json_of(source("rank0.json", packed), limit=3_000_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{]", "is not JSON: expecting property name"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b"\xff\xfe\x00", "is neither text"),
        (b"", "ends at character 0"),
        (b'{"traceEvents": 5}', "x.json is not a profiler trace: it has no traceEvents"),
        (b"[1, 2]", "x.json is not a profiler trace: it has no traceEvents"),
        (b'{"traceEvents": []}', "x.json does not say its rank; name it rank0.json"),
    ],
)
def test_what_is_no_trace(text: bytes, words: str) -> None:
    with pytest.raises(PuzzleError) as why:
        study([source("x.json", text)])
    assert words in str(why.value)


def test_a_dump_without_its_config() -> None:
    with Refused("no traceEvents"):
        study([source("pp_rank_0.json", b"{}")])


def test_a_rank_without_a_file() -> None:
    found = traces("1f1b_annotated")
    del found[2]
    Refused("ranks missing", missing=2, world=4, said="distributedInfo", given="0-1, 3").require(refusal(found))
    for trace in found:
        del trace["distributedInfo"]
    with Refused("ranks missing", missing=1, world=4, said="the names of the files"):
        study([source(f"rank{rank}.json", json.dumps(trace).encode()) for rank, trace in zip((0, 2, 3), found)])


def test_two_files_of_a_rank() -> None:
    every = sources(traces("1f1b_annotated"))
    more = source("rank1_copy.json", json.dumps(traces("1f1b_annotated")[1]).encode())
    with Refused("second file of rank", file="rank1_copy.json", rank=1):
        study([*every, more])


def test_another_run() -> None:
    found = traces("interleaved_steps")
    for event in events(found[3], lambda event: event["name"].startswith("ProfilerStep#")):
        event["name"] = f"ProfilerStep#{int(event['name'][13:]) + 3}"
    Refused("other steps", rank=3, steps="5-7", first=0, first_steps="2-4").require(refusal(found))
    found = traces("1f1b_annotated")
    found[3]["distributedInfo"]["world_size"] = 8
    Refused("other world_size", rank=3, world=8, first_rank=0, first_world=4).require(refusal(found))


def without(found: list[Trace], name: str) -> list[Trace]:
    for trace in found:
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not str(event.get("name")).startswith(name)]
    return found


def test_a_schedule_without_cells_is_reported() -> None:
    unnamed = study(sources(without(traces("interleaved"), "PP:")))
    assert isinstance(unnamed, Shares)
    assert any("--hooks torch" in note for note in unnamed.notes)
    silent = study(sources(without(without(without(traces("interleaved"), "PP:"), "c10d::"), "gloo:")))
    assert isinstance(silent, Shares)
    assert (silent.calls, unnamed.calls > 0) == (0, True)
    for one in (*unnamed.ranks, *silent.ranks):
        assert one.computing > 0
        assert one.computing + sum(one.waiting.values()) + one.communication + one.host == pytest.approx(one.length)


def test_a_rank_on_which_nothing_ran_is_refused() -> None:
    found = traces("ddp")
    found[1]["traceEvents"] = [event for event in found[1]["traceEvents"] if event.get("cat") != "cpu_op"]
    Refused("nothing ran", ranks=1).require(refusal(found))


@pytest.mark.slow
def test_an_incomplete_step_is_left_out_and_said() -> None:
    found = traces("interleaved_steps")
    last = events(found[1], lambda event: event["name"] == "PP:1B3")[-1]
    found[1]["traceEvents"].remove(last)
    again = study(sources(found))
    (note,) = again.gathered.notes  # type: ignore[union-attr]
    assert note.startswith("Step 4 of rank")
    assert note.endswith("taken: steps 2-3.")
    alone = traces("1f1b_annotated")
    alone[1]["traceEvents"].remove(events(alone[1], lambda event: event["name"] == "PP:1B3")[0])
    Refused("incomplete step", number=2, rank=1, batch=3, missing="backward", stage=1).require(refusal(alone))


def test_a_profile_that_ends_within_a_step() -> None:
    found = traces("interleaved")
    for trace in found:
        times = sorted(event["ts"] for event in events(trace, lambda event: event["name"].startswith("PP:")))
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("ts", 0) < times[len(times) // 2]]
    Refused("incomplete step", number=2).require(refusal(found))


def test_a_cell_that_is_there_twice() -> None:
    found = traces("1f1b_annotated")
    event = events(found[0], lambda event: event["name"] == "PP:0F3")[0]
    found[0]["traceEvents"].append(event)
    Refused("cells not once", number=2, rank=0, has="F F B", batch=3, stage=0).require(refusal(found))


def test_cells_that_take_no_time() -> None:
    found = traces("1f1b_annotated")
    for trace in found:
        for event in events(trace, lambda event: event["cat"] == "cpu_op"):
            event["cat"] = "other"
    assert str(refusal(found)).startswith("step 2 has no cell that takes time; record activities of the CPU")


def test_clocks_that_drift() -> None:
    found = moved(traces("interleaved"), (0, 0, 0, 0))
    start = min(event["ts"] for event in events(found[2], lambda event: True))
    for event in events(found[2], lambda event: True):
        event["ts"] += 0.05 * (event["ts"] - start)
        event["dur"] *= 1.05
    words = str(refusal(found))
    assert "no clocks fit: " in words
    assert "on rank 2" in words
    assert "a clock drifts" in words


def test_clocks_of_one_host_that_contradict_each_other_are_said() -> None:
    found = moved(traces("1f1b_annotated"), (0, 12, 0, 0))
    for trace in found:
        trace["host_name"] = "node7"
    again = study(sources(found))
    assert any("both ran on node7" in note for note in again.gathered.notes)  # type: ignore[union-attr]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("ts", "soon", "has a ts that is not a time: 'soon'"),
        ("ts", True, "has a ts that is not a time: True"),
        ("ts", float("nan"), "has a ts that is not a time: nan"),
        ("dur", [1], "has a dur that is not a time: [1]"),
        ("dur", -2.5, "lasts less than no time: -2.5 µs"),
        ("name", 5, "has a name that is not a string: 5"),
        ("args", [], "has args that are not an object: []"),
        ("pid", {}, "has a process or thread that is neither a number nor text: {}"),
    ],
)
def test_events_that_are_not_as_the_profiler_writes_them(field: str, value: Any, words: str) -> None:
    found = traces("1f1b_annotated")
    events(found[2], lambda event: event["name"] == "PP:2F5")[0][field] = value
    told = str(refusal(found))
    assert told.startswith("rank2.json, event ")
    assert told.endswith(words)


RULES = [
    ("cell = 5", "has no [[cell]]"),
    ("[[cell]", "is not TOML"),
    ("[[cell]]\nop = 'F'", "cell 1 has no match"),
    ("[[cell]]\nmatch = '('\nop = 'F'", "'(' is not a regular expression"),
    ("[[cell]]\nmatch = 'x'", "has no operation: op is F, B, I or W"),
    ("[[cell]]\nmatch = '(?P<rank>x)'\nop = 'F'", "has the group rank; groups are stage, batch, chunk, op"),
]


@pytest.mark.parametrize(("text", "words"), RULES)
def test_rules_for_names_that_are_none(text: str, words: str) -> None:
    with pytest.raises(PuzzleError) as why:
        read_rules(text, "names.toml")
    assert str(why.value).startswith("names.toml")
    assert words in str(why.value)


def test_names_that_a_rule_cannot_read() -> None:
    rule = read_rules("[[cell]]\nmatch = 'PP:(?P<stage>\\d)(?P<op>\\w)(?P<batch>.)'", "names.toml")
    found = traces("1f1b_annotated")
    events(found[0], lambda event: event["name"] == "PP:0F3")[0]["name"] = "PP:0X3"
    Refused("no such operation", name="PP:0X3", op="X").require(refusal(found, rules=rule))
    events(found[0], lambda event: event["name"] == "PP:0X3")[0]["name"] = "PP:0Fx"
    Refused("no number", name="PP:0Fx", got="x").require(refusal(found, rules=rule))


@pytest.mark.slow
def test_steps_ranks_and_folders_that_are_not_there(tmp_path: Path) -> None:
    Refused("no such step", step=7, steps="2-4").require(refusal(traces("interleaved_steps"), step=7))
    assert "of these ranks" in str(refusal(traces("interleaved_steps"), only={5, 6}))
    with Refused("no JSON file"):
        sources_of([tmp_path])
    with Refused("no file"):
        study([])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the folder of a run, as in: puzzles profile traces/"),
        (["nowhere"], "'nowhere' does not exist"),
        (["1f1b", "-o", "run.gif"], "cannot write run.gif: the name must end with .html"),
        (["1f1b", "--ranks", "a-b"], "'a-b' is not a list of ranks; write 0-3 or 0,2,5"),
        (["zbv", "-o", "x.csv"], "no better order was found; take the order measured (--order measured)"),
        (["ddp", "-o", "x.csv"], "these files have no pipeline, so there is not an order"),
        (["1f1b", "-o", "nowhere/x.json"], "cannot write nowhere/x.json: no such file or directory"),
    ],
)
def test_commands_that_cannot_be_done(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    done = puzzles("profile", *arguments)
    assert done.exit_code == 2
    assert words in done.output
    assert "Traceback" not in done.output
