"""What a teacher's file says of its reference: measured, written, compared, and held against solutions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import Result

from puzzles.custom import OwnPuzzleError, folder_added
from puzzles.judge.grader import grade_file
from puzzles.teaching.writing import begin
from puzzles.tracks import find
from tests.support.commands import puzzles
from tests.support.relay import measured_rows

pytestmark = pytest.mark.usefixtures("in_this_process")

ROWS = measured_rows("relay")


def check(folder: Path, *words: str) -> Result:
    return puzzles("check", str(folder), *words)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A puzzle that `check` has nothing to say on; its reference is data parallelism."""
    file, *_ = begin("relay", "schedule", tmp_path / "week3")
    file.write_text(f"{file.read_text().replace('TODO: ', '')}\n[targets]\ntime = 5\nmemory = 1_800_000\n{ROWS}")
    return file


ALL_ON_RANK_0 = """
    if model.rank == 0:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        grad = model.loss(model.activations[model.LAYERS])
        for layer in reversed(range(model.LAYERS)):
            made, grad = model.backward(layer, model.activations[layer], grad, model.weights[layer])
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, made, model.weights[layer], model.opt_states[layer])
"""

FOR_SHOW = """
    else:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)
"""


def solution(file: Path, elsewhere: str) -> Path:
    """The reference at the shown size, and something else at the other sizes."""
    reference = (file.parent / "solutions" / "relay.py").read_text().replace("async def relay(", "async def at_2(")
    path = file.parent.parent / "mine.py"
    path.write_text(f"""{reference}

async def relay(model: Model) -> Model:
    if model.LAYERS == 2:
        return await at_2(model)
{elsewhere.strip(chr(10))}
    for layer in model.weights:
        model.set_final_weight(layer, model.weights[layer])
    return model
""")
    return path


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        (ALL_ON_RANK_0, "with 3 layers, 4 batches, 4 ranks, one rank does all the work"),
        (
            ALL_ON_RANK_0.rstrip() + FOR_SHOW,
            "the reference takes 7.9 and 2,621,440, and sends 1,179,648, so",
        ),
    ],
)
def test_a_general_solution_in_which_rank_0_does_all_elsewhere_is_noted(elsewhere: str, said: str, file: Path) -> None:
    with folder_added(file.parent):
        (verdict,) = grade_file(str(solution(file, elsewhere)), [find("relay")]).verdicts
        (reference,) = grade_file(str(file.parent / "solutions" / "relay.py"), [find("relay")]).verdicts
    assert (verdict.status, verdict.stars) == ("passed", 2), verdict.message
    assert any(said in note for note in verdict.notes), verdict.notes
    assert (reference.stars, reference.notes) == (3, ())


def test_without_its_figures_only_one_working_rank_is_noted(file: Path) -> None:
    file.write_text(file.read_text().partition("[[reference_at]]")[0])
    with folder_added(file.parent):
        (verdict,) = grade_file(str(solution(file, ALL_ON_RANK_0.rstrip() + FOR_SHOW)), [find("relay")]).verdicts
    assert (verdict.stars, verdict.notes) == (3, ())


@pytest.mark.slow
def test_stale_figures_are_named_and_corrected_and_the_rest_of_the_file_stays(file: Path) -> None:
    text = file.read_text()
    assert check(file.parent, "--write").exit_code == 0
    assert file.read_text() == text, "nothing is written that is there"
    file.write_text(
        text.replace("= 7.9", "= 8").replace("= 5.1", "= 5").replace("[[reference_at]]", "# Mine.\n[[reference_at]]")
    )
    stale = check(file.parent)
    assert stale.exit_code == 1
    assert "5 timesteps, 1,835,008 elements" in stale.output
    assert "takes 5.1 timesteps" in stale.output
    assert ("8 timesteps, 2,621,440") in stale.output
    written = check(file.parent, "--write")
    assert written.exit_code == 0, written.output
    assert "Wrote the reference's figures" in written.output
    head, _, _ = text.partition("# Measured")
    assert file.read_text().startswith(head)
    assert file.read_text().count("# Mine.") == 1
    assert tomllib.loads(file.read_text()) == tomllib.loads(text)


@pytest.mark.slow
def test_a_row_that_was_written_before_traffic_was_measured_still_holds_and_is_completed(file: Path) -> None:
    whole = file.read_text()
    text = re.sub(r"(?m)^traffic = .*\n", "", whole)
    file.write_text(text)
    checked = check(file.parent)
    assert checked.exit_code == 0, checked.output
    for words in ("records: the reference takes 5.1 timesteps", "1,179,648 elements sent with 3 layers, 4 batches"):
        assert words in checked.output
    assert checked.output.count("--write adds") == 2
    assert check(file.parent, "--write").exit_code == 0
    assert file.read_text() == whole
    file.write_text(text.replace("peak_memory = 2_621_440", "peak_memory = 2_621_440\ntraffic = 3"))
    stale = check(file.parent)
    assert "7.9 timesteps, 2,621,440" in stale.output


@pytest.mark.slow
def test_a_size_that_is_no_more_and_one_that_is_new(file: Path) -> None:
    text = file.read_text()
    file.write_text(
        text.replace("[{ layers = 3, batches = 4, ranks = 4 }]", "[{ layers = 2, batches = 4, ranks = 4 }]")
    )
    found = check(file.parent)
    assert "takes 5.1 timesteps" in found.output, "a batch on each rank, as ever"
    assert "4 ranks; --write adds" in found.output
    assert "run with 3 layers," in found.output
    assert check(file.parent, "--write").exit_code == 0
    (row,) = tomllib.loads(file.read_text())["reference_at"]
    assert row["size"] == {"layers": 2, "batches": 4, "ranks": 4}


@pytest.mark.slow
def test_a_puzzle_of_one_size_is_ready_and_told_what_that_means(file: Path) -> None:
    text = file.read_text().partition("\n[[reference_at]]")[0]
    file.write_text(re.sub(r"(?m)^other_sizes.*\n", "", text))
    checked = check(file.parent)
    assert checked.exit_code == 0, checked.output
    assert "other_sizes:" in checked.output


@pytest.mark.slow
def test_line_ends_stay(file: Path) -> None:
    text = file.read_text()
    file.write_text(text.replace("= 7.9", "= 8"), newline="\r\n")
    assert check(file.parent, "--write").exit_code == 0
    assert file.read_bytes() == text.encode().replace(b"\n", b"\r\n")


def test_a_file_that_cannot_be_written_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(file.read_text().replace("= 7.9", "= 8"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    refused = check(file.parent, "--write")
    assert refused.exit_code == 2
    assert f"{file}: Read-only file system" in refused.output


@pytest.mark.slow
def test_records_of_others_stay_where_they_are(file: Path) -> None:
    other = '[[records]] # of last year\ntimesteps = 4\npeak_memory = 9_000_000\nby = "Ben \\\\ \\""\n'
    text = file.read_text().replace("# Measured", f"{other}\n# Measured").replace("= 7.9", "= 8")
    file.write_text(text)
    assert check(file.parent, "--write").exit_code == 0
    assert other in file.read_text()
    assert [row["by"] for row in tomllib.loads(file.read_text())["records"]] == ['Ben \\ "', "solutions/relay.py"]


@pytest.mark.slow
def test_a_variant_of_a_file_is_checked_as_a_record(file: Path) -> None:
    """What the other variants fail with shows that their constants were set."""
    solutions = file.parent / "solutions"
    text = (solutions / "relay.py").read_text().replace("async def relay", "async def once")
    variants = 'TIMES = 1\nVARIANTS = {"once": {"TIMES": 1}, "twice": {"TIMES": 2}}\n'
    schedule = "async def relay(model):\n    return await once(model) if TIMES == 1 else model.no_such_call()\n"
    (solutions / "ways.py").write_text(f"{text}\n\n{variants}\n\n{schedule}")
    row = '[[records]]\ntimesteps = 5.1\npeak_memory = 1_835_008\nby = "solutions/ways.py: {}"\n\n'
    written = file.read_text()
    file.write_text(written.replace("# Measured", f"{row.format('once')}# Measured"))
    checked = check(file.parent)
    assert checked.exit_code == 0, checked.output
    for variant, why in (("twice", "no_such_call"), ("thrice", "thrice")):
        file.write_text(written.replace("# Measured", f"{row.format(variant)}# Measured"))
        checked = check(file.parent)
        assert checked.exit_code == 1
        assert f"solutions/ways.py: {variant}" in checked.output
        assert why in checked.output.partition("1,835,008 elements: ")[2]


@pytest.mark.slow
def test_rows_that_are_one_field_stay_one(file: Path) -> None:
    text = file.read_text().partition("[[reference_at]]")[0]
    size = "{ layers = 3, batches = 4, ranks = 4 }"
    row = f"    {{ size = {size}, timesteps = 7.9, peak_memory = 2_621_440, traffic = 1_179_648 }}, # mine"
    text = text.replace("other_sizes", f"reference_at = [\n{row}\n]\nother_sizes", 1)
    file.write_text(text.replace("= 7.9", "= 8"))
    assert check(file.parent, "--write").exit_code == 0
    assert file.read_text() == text


@pytest.mark.slow
def test_a_header_within_a_text_is_no_header(file: Path) -> None:
    text = file.read_text().replace('statement = """', 'statement = """\n[[reference_at]]\ntimesteps = 1\n')
    file.write_text(text.replace("= 7.9", "= 8"))
    assert check(file.parent, "--write").exit_code == 0
    assert file.read_text() == text


def test_python_is_told_what_to_write(file: Path) -> None:
    file.unlink()
    (file.parent / "relay.py").write_text(
        "from lib import Goal, Size\nfrom puzzles.catalog.schedule import SchedulePuzzle\n"
        "REFERENCE = 'solutions/relay.py'\n"
        "PUZZLE = SchedulePuzzle(title='A', goal=Goal('relay', Size(2, 2, 2), time=5, memory=1_800_000),"
        " other_sizes=(Size(3, 4, 4),), calls=(), statement='B', starter='C', hints=(), concept='',"
        " in_practice='', sources=())\n"
    )
    found = check(file.parent, "--write")
    assert "Record(5.1, 1_835_008, 'solutions/relay.py'," in found.output
    added = "add ReferenceAt(Size(layers=3, batches=4, ranks=4), 7.9, 2_621_440, traffic=1_179_648) in reference_at"
    assert added in found.output
    assert "Wrote" not in found.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("timesteps = 7.9", "steps = 7.9", ("[[reference_at]] 1", "'timesteps' is missing")),
        ("timesteps = 7.9", "timesteps = -1", ("[[reference_at]] 1", "'timesteps' is a number of steps", "-1")),
        ("timesteps = 7.9", "timesteps = 7.9\nby = 'me'", ("[[reference_at]] 1", "no field 'by'")),
        ("size = { layers = 3,", "size = {", ("[size]", "'layers' is missing")),
    ],
)
def test_a_row_with_a_mistake_is_named(old: str, new: str, words: tuple[str, ...], file: Path) -> None:
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(OwnPuzzleError) as caught, folder_added(file.parent):
        pass
    for word in (str(file), *words):
        assert word in str(caught.value)


def test_a_size_has_one_row(file: Path) -> None:
    text = file.read_text()
    file.write_text(text + "\n[[reference_at]]" + text.partition("[[reference_at]]")[2])
    with pytest.raises(OwnPuzzleError, match="4 ranks; keep one"):
        folder_added(file.parent).__enter__()
