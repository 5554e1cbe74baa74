"""The scenes: what a player has in a folder, what is typed there, and which keys are pressed."""

from collections.abc import Mapping
from typing import NamedTuple

from puzzles.cli.main import OTHERS, PLAY


class Scene(NamedTuple):
    """What is typed in a folder. A file's content is a text of several lines, or a path in this project: of a file, of
    a folder, or of a wrong solution, which may be a diff."""

    name: str
    typed: tuple[str, ...]
    files: Mapping[str, str] = {}
    keys: str = ""
    sandboxed: bool = False
    """True if a run may not come to its end in this process."""
    slow: bool = False


class Mistake(NamedTuple):
    """A wrong solution of the core path that many players hand in, and what it teaches."""

    name: str
    title: str
    path: str
    """In `tests/catalog/wrong`."""
    lesson: str

    @property
    def scene(self) -> Scene:
        return graded(f"mistake_{self.name}", f"tests/catalog/wrong/{self.path}.diff")


MINE = "my_solutions.py"


def graded(name: str, path: str, *options: str, **how: bool) -> Scene:
    """A player grades a file of the project as their own."""
    return Scene(name, (" ".join(["grade", MINE, *options]),), {MINE: path}, **how)


MISTAKES = (
    Mistake(
        "order_of_backward", "Backward in the order of forward", "basic/backward_in_the_order_of_forward",
        "Backward needs the gradient of the layer above. Go through the layers in reverse.",
    ),
    Mistake(
        "wrong_input", "Backward with a layer's output", "basic/backward_reads_the_layer_s_output",
        "Backward takes the activation that the layer's forward has read. Keep it until then.",
    ),
    Mistake(
        "update_thrown_away", "The result of an update is thrown away", "basic/the_updated_weight_is_thrown_away",
        "Operations change nothing in place. Assign what they return.",
    ),
    Mistake(
        "keeps_everything", "Nothing is deleted", "basic/keeps_everything",
        "A stored value takes memory until you delete it, even when nothing reads it again.",
    ),
    Mistake(
        "last_gradient_only", "Each microbatch overwrites the gradient", "grad_accum/keeps_the_last_gradient_only",
        "Add the gradients of all microbatches with `+` before the update.",
    ),
    Mistake(
        "twice_summed", "A microbatch is counted twice", "grad_accum/the_same_batch_each_time",
        "The sum must contain each microbatch once. Load another one in each round.",
    ),
    Mistake(
        "no_final_weight", "No final weights", "grad_accum/no_final_weight",
        "A step ends when every updated weight has been passed to `set_final_weight`.",
    ),
    Mistake(
        "no_await", "A call is not awaited", "ddp/no_await",
        "Communication takes time, so its calls are coroutines. Write `await` before each.",
    ),
    Mistake(
        "no_all_reduce", "Gradients are not summed over the ranks", "ddp/no_all_reduce",
        "Each rank has seen only its own microbatches. All-reduce the gradients before the update.",
    ),
    Mistake(
        "every_batch", "Every rank takes every batch", "ddp/every_rank_takes_every_batch",
        "Data parallelism divides the batches. Let each rank load only its own.",
    ),
    Mistake(
        "deleted_too_early", "A value is deleted too early", "ddp/deletes_an_activation_before_backward",
        "Backward still needs a layer's input. Delete it afterwards.",
    ),
    Mistake(
        "argument_missing", "An argument is missing", "ddp/leaves_an_argument_out",
        "`update` takes the optimizer state too, and returns it with the weight.",
    ),
    Mistake(
        "full_weight_updated", "A full weight with a sharded state", "zero1/a_full_weight_is_updated",
        "With a sharded optimizer state each rank updates its own shard, and then gathers the weight.",
    ),
    Mistake(
        "no_gather", "A shard where a full weight is needed", "fsdp/no_gather",
        "Forward and backward need the full weight. All-gather it just before.",
    ),
    Mistake(
        "full_sum", "An all-reduce of which a shard is used", "fsdp/a_full_sum_of_which_a_shard_is_used",
        "A reduce-scatter leaves each rank with its shard of the sum, and sends half as much.",
    ),
    Mistake(
        "send_to_nobody", "A message to a rank that does not exist", "pipeline/a_send_to_nobody",
        "The first rank has no previous one, and the last rank no next one.",
    ),
    Mistake(
        "no_send", "A receive without a send", "pipeline/no_send_forward",
        "If every rank waits for a message, nobody sends one. This is a deadlock.",
    ),
    Mistake(
        "late_send", "Messages are sent late", "gpipe/sends_when_all_are_done",
        "Send a result as soon as it is there, so that the next rank can begin.",
    ),
    Mistake(
        "handle_used", "A handle is used as a value", "ddp_overlap/the_handle_is_taken_for_the_sums",
        "With overlap, a call returns a handle at once. Await the handle to get the value.",
    ),
    Mistake(
        "no_group", "A collective without its group", "three_d/no_group_for_the_gradients",
        "A collective without a group includes every rank. Name the axis along which it runs.",
    ),
)  # fmt: skip
"""Twenty, in the order of the core path."""


def mistaken(name: str, path: str) -> Scene:
    return graded(name, f"tests/catalog/wrong/{path}")


CLASS = """\
submissions = "submitted"
roster = "roster.csv"

[points]
basic = 5
ddp = 10
"""
ROSTER = """\
name,id
Ann Lee,u1
Bo Chen,u2
Cleo Diaz,u3
"""
ENDLESS = """\
def basic(model):
    while True:
        pass
"""
EXIT = """\
import os


def basic(model):
    os._exit(3)
"""
OPEN_PARENTHESIS = """\
def basic(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage(
"""
OTHER_NAME = """\
def basics(model):
    return model
"""
LLAMA = "plan --model llama-3-8b --gpus 16 --batch 64"


def helps(name: str, commands: tuple[str, ...]) -> Scene:
    return Scene(f"help_{name}", tuple(f"{command} --help" for command in commands))


SCENES = (
    Scene("help", ("--help",)),
    helps("first", PLAY),
    *(helps(purpose.removeprefix("to ").replace("for a ", "").replace("on a ", ""), OTHERS[purpose])
      for purpose in OTHERS),
    Scene("wrong_words", (
        "wach my_solutions.py", "show fdsp", "grade no_file.py", "hint basic -n 9", "solve --ranks 4",
    )),
    Scene("list", ("list", "list classics", "list shards")),
    Scene("path", ("path",)),
    Scene("next", ("next", f"grade {MINE}")),
    Scene("show_schedule", ("show basic",)),
    Scene("show_time", ("show zb_h1",)),
    Scene("show_class", ("show FSDP",)),
    Scene("show_layout", ("show ffn",)),
    Scene("show_plan", ("show llama_8b_16",)),
    Scene("show_background", ("show fsdp --about", "hint fsdp", "hint fsdp -n 2")),
    graded("pass_schedule", "solutions/gpipe.py", "--why"),
    graded("pass_two_stars", "solutions/ddp.py"),
    graded("pass_class", "solutions/engine/fsdp.py"),
    graded("pass_layout", "solutions/layout/ffn.py"),
    graded("pass_plan", "solutions/plan/llama_8b_16.py"),
    *(mistake.scene for mistake in MISTAKES),
    mistaken("miss_time", "one_f_one_b/no_warm_up.diff"),
    mistaken("miss_bytes", "DataParallel/gathered_then_summed.diff"),
    mistaken("miss_messages", "RingAllReduce/one_round_too_many.diff"),
    mistaken("miss_peak", "FSDP/parameters_kept.diff"),
    mistaken("miss_layout_bytes", "matmul/the_summed_dimension_is_split.diff"),
    mistaken("miss_layout_memory", "matmul/only_the_batch_is_split.diff"),
    mistaken("miss_plan_time", "llama_8b_16/tensors_over_eight_gpus.diff"),
    mistaken("refused_class", "DataParallel/the_average.diff"),
    mistaken("refused_layout", "matmul/one_factor_is_split_differently.diff"),
    mistaken("refused_plan", "llama_8b_16/gradients_on_every_gpu.diff"),
    mistaken("refused_split", "llama_8b_16/too_few_gpus.diff"),
    mistaken("deadlock_class", "RingAllReduce/everybody_waits.diff"),
    mistaken("crash_class", "FSDP/no_gather.diff"),
    Scene("crash", (f"grade {MINE}",), {MINE: EXIT}, sandboxed=True),
    Scene("time_out", (f"grade {MINE} --limit time=0.2",), {MINE: ENDLESS}, sandboxed=True),
    Scene("not_python", (f"grade {MINE}",), {MINE: OPEN_PARENTHESIS}),
    Scene("no_attempt", (f"grade {MINE}",), {MINE: OTHER_NAME}),
    Scene("of_others", ("grade solved.py",), {"solved.py": "solutions/fsdp.py"}),
    Scene("watch", ("next", f"watch {MINE}"), keys="hlpsxq"),
    Scene("status", (f"watch {MINE}", "status"), {MINE: "solutions/basic.py"}, keys="q"),
    Scene("class", ("class .",), {
        "course.toml": CLASS,
        "roster.csv": ROSTER,
        "submitted/u1/homework.py": "solutions/basic.py",
        "submitted/u2/homework.py": "tests/catalog/wrong/ddp/no_all_reduce.diff",
    }),
    Scene("plan", (LLAMA, f"{LLAMA} --pp 2 --tp 8 --dp 8")),
    Scene("solve", ("solve --ranks 3 --microbatches 4 --memory 3 --effort 0.02 --proof-seconds 0",)),
    Scene("profile", ("profile traces",), {"traces": "tests/profiles/traces/1f1b"}),
    Scene("doctor", ("doctor",)),
)  # fmt: skip
