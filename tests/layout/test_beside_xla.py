"""docs/xla.md is what plans and XLA's partitioner move now, and the bytes of compiled collectives are counted right."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from docs.generate import xla
from lib.layout.xla import collectives, group_size
from tests.support.xla_partitioner import measured
from tests.test_imports import ROOT

LINES = {
    "%r = f32[32,64]{1,0} all-reduce(%d), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add": 98304,
    "%r = f32[32,64]{1,0} all-reduce(%d), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true": 98304,
    "%r = (f32[4]{0}, f32[4]{0}) all-reduce(%a, %b), replica_groups={}, to_apply=%add": 2 * 7 * 32,
    "ROOT %g = bf16[64,64]{0,1} all-gather(%b), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={1}": 2 * 3 * 64 * 64 * 2,
    "%s = f32[16,64]{1,0} reduce-scatter(%d), replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}": 4 * 2 * 4096,
    "%a = (f32[1,16]{1,0}, f32[1,16]{1,0}, f32[2,16]{1,0}) all-to-all(%a, %b, %c, %d), "
    "replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}": 2 * 3 * 256,
    "%p = s32[16]{0} collective-permute(%x), source_target_pairs={{0,0},{1,4},{4,1}}, metadata={}": 2 * 64,
    "%f = f32[32,64]{1,0} fusion(%all-reduce.1), kind=kLoop, calls=%fused": None,
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_bytes_of_compiled_collectives(line: str) -> None:
    assert [sum(each.sent) for each in collectives(line, 8)] == ([] if LINES[line] is None else [LINES[line]])


def test_collectives_whose_bytes_are_unknown_are_refused() -> None:
    for line, why in {
        "%r = f32[4]{0} all-reduce-start(%d), replica_groups={{0,1}}": "cannot be counted",
        "%r = f32[4]{0} ragged-all-to-all(%d), replica_groups={{0,1}}": "cannot be counted",
        "%r = f32[4]{0} all-reduce(%d), replica_groups={{0,1},{2}}": "different sizes",
        "%r = f32[4]{0} all-reduce(%d), replica_groups=other": "unknown form",
    }.items():
        with pytest.raises(ValueError, match=why):
            collectives(line, 8)
    assert group_size("replica_groups=mesh['a'=8] {'a':(2)4}", 8) == 4, "a part of an axis"


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")


@pytest.mark.slow
@needs_jax
def test_the_page_is_what_is_measured() -> None:
    shown = xla.FILE.read_text(encoding="utf-8")
    found = measured()
    if f"with jax {found['jax']}:" in shown:
        assert xla.untimed(shown) == xla.untimed(xla.page(found)), "out of date: make docs"
    for each in found["rows"]:  # with another version, only the plans have to be as shown
        assert f"| {' | '.join(xla.row(each)[:2])} |" in shown, "out of date: make docs"


@needs_jax
def test_the_python_of_the_page_prints_what_is_shown() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", xla.HEAD, re.MULTILINE | re.DOTALL)
    (text,) = re.findall(r"^```text\n(.*?)^```", xla.HEAD, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == text, done.stderr


def test_without_jax_the_page_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xla, "find_spec", lambda name: None)
    before = xla.FILE.stat().st_mtime_ns
    xla.main()
    assert "jax is not installed" in capsys.readouterr().err
    assert xla.FILE.stat().st_mtime_ns == before
