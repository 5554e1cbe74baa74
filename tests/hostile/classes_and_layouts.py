"""Hostile classes and layouts, each with the verdict that it must get. Data for `test_hostile.py`."""

from pathlib import Path

SOLUTIONS = Path(__file__).parents[2] / "solutions"
PARALLEL = (SOLUTIONS / "engine" / "data_parallel.py").read_text(encoding="utf-8")
FFN = (SOLUTIONS / "layout" / "ffn.py").read_text(encoding="utf-8")

IMPORTS = """\
from puzzles.sandbox.worker.seccomp import ctypes
import base64, gc, json, os, signal, sys, threading, time
import numpy as np
import lib.engine
from lib.engine import ShardedEngine, launch

def seen_by_all(owner):
    if not hasattr(owner, "seen"):
        owner.seen = []
    return owner.seen

def tell(**row):
    os.write(3, (json.dumps({"defined": True, "failure": None, **row}) + "\\n").encode())
    os._exit(0)
"""

WRONG = """\
class DataParallel(ShardedEngine):
    def __init__(self, model_dim, hidden_dim):
        {body}

    def load_checkpoint(self, params):
        pass

    def forward(self, x):
        return x

    def backward(self, grads):
        return {{}}
"""
"""A class that computes nothing; what it tries instead comes while it is made."""


def wrong(body: str) -> str:
    """That class with this body of its `__init__`."""
    return WRONG.format(body=body.replace("\n", "\n        ") if "\n        " not in body else body)


SHARED = "[(seen := {}).append(w1_grad.tolist()), self.barrier(), np.sum(np.array(seen, np.float32), axis=0)][-1]"
"""A sum without a message, through a list that all devices would have to see."""

SOLVED = {
    "starts_a_thread": ("grads):", "grads):\n        threading.Thread(target=print).start()", "crash"),
    "resets_its_meter": (
        "self.all_reduce(w1_grad)", "[self.all_reduce(w1_grad), setattr(self._port.meter, 'sent', 0)][0]", None,
    ),
    "swaps_its_meter": (
        "grads):",
        "grads):\n        from lib.engine.metering import Meter\n        self._port.meter = Meter()",
        "rule", "crash",
    ),
    "patches_the_meter": (
        "class DataParallel",
        "import lib.engine.metering as m\nm.Meter.communicate = lambda *a: None\nm.Meter.compute = lambda *a: None\n"
        "class DataParallel",
        "rule",
    ),
    "patches_the_code_of_the_meter": (
        "class DataParallel",
        "import lib.engine.metering as m\nm.Meter.reading.__code__ = (lambda self: None).__code__\nclass DataParallel",
        "rule", "crash",
    ),
    "patches_numpy": ("class DataParallel", "np.matmul = lambda *a, **k: 0\nclass DataParallel", "rule"),
    "patches_numpy_while_it_runs": ("grads):", "grads):\n        np.einsum = np.dot = None", "rule", "crash", None),
    "patches_launch": (
        "class DataParallel", "lib.engine.launcher.launch = launch = lambda *a, **k: None\nclass DataParallel", "rule", None,
    ),
    "patches_the_transport": (
        "class DataParallel",
        "import lib.engine.inprocess as p\np.InProcessPort.collective = lambda self, call, arr: arr\nclass DataParallel",
        "rule",
    ),
    "patches_bytes_sent": (
        "class DataParallel",
        "import lib.engine.collectives as m\nm.bytes_sent = lambda *a: 0\nclass DataParallel",
        "rule",
    ),
    "talks_through_the_class": ("self.all_reduce(w1_grad)", SHARED.format("seen_by_all(DataParallel)"), "rule"),
    "talks_through_the_module": ("self.all_reduce(w1_grad)", SHARED.format("globals().setdefault('seen', [])"), "rule"),
    "talks_through_the_module_by_name": (
        "self.all_reduce(w1_grad)", SHARED.format("seen_by_all(sys.modules[__name__])"), "rule",
    ),
    "talks_through_the_engine": ("self.all_reduce(w1_grad)", SHARED.format("seen_by_all(ShardedEngine)"), "rule"),
    "talks_through_the_engine_module": ("self.all_reduce(w1_grad)", SHARED.format("seen_by_all(lib.engine)"), "rule"),
    "computes_unmetered": ("grads):", "grads):\n        with lib.engine.unmetered(): grads @ grads.T", "rule"),
    "launches_devices": ("grads):", "grads):\n        launch(DataParallel, 1, 16, 64)", "rule"),
    "keeps_something_in_its_class": ("grads):", "grads):\n        DataParallel.seen = np.array(grads)", None),
    "tries_itself_out": (
        "class DataParallel",
        "class Sum(ShardedEngine):\n    load_checkpoint = backward = lambda self, x: None\n"
        "    def forward(self, x): return self.all_reduce(x)\n"
        "with launch(Sum, 2) as run: print(run.forward(np.ones(9)))\nclass DataParallel",
        None,
    ),
    "keeps_its_weights_in_lists_of_the_module": ("self.w1[...] = ", "globals()['HIDDEN'] = params['layer_1/weights'].tolist()\n        self.w1[...] = ", "rule"),
    "keeps_its_weights_in_lists": ("self.w1[...] = ", "self.hidden = params['layer_1/weights'].tolist()\n        self.w1[...] = ", "rule"),
    "keeps_its_weights_as_text": ("self.w1[...] = ", "self.hidden = {'w': params['layer_1/weights'].tobytes()}\n        self.w1[...] = ", "rule"),
    "keeps_a_few_numbers": ("self.w1[...] = ", "self.rows = list(range(16))\n        self.w1[...] = ", None),
    "noisy": ("grads):", "grads):\n        print('x' * 9999, self)", None),
}  # fmt: skip
"""By name: the text of the solution, what replaces it, and the reasons allowed; None where it may pass."""

BODIES = {
    "prints_success": ("print('passed')", "rule"),
    "patches_compare": (
        "import puzzles.tracks.engine.judge as j\nj.compare = j.require_right = lambda *a: None", "crash",
    ),
    "imports_the_trials": ("from puzzles.content.engine.data import trials", "crash"),
    "reads_the_trials": (
        "open(os.path.join(os.path.dirname(os.path.dirname(lib.__file__)), 'puzzles/content/engine/data/trials.py'))",
        "crash",
    ),
    "finds_the_trials_in_memory": (
        "assert not [o for o in gc.get_objects() if type(o).__name__ in ('Trial', 'MethodCall') and hasattr(o, 'wanted')]",
        "rule",
    ),
    "loops_for_ever": ("while True: pass", "timeout"),
    "sleeps": ("time.sleep(10**9)", "timeout"),
    "hogs_memory": ("self.hog = [np.zeros(10**8) for _ in range(99)]", "memory"),
    "floods": ("while True: os.write(1, b'x' * 65536)", "crash"),
    "forks": ("while True:\n            if os.fork() == 0: time.sleep(100)", "crash"),
    "segfaults": ("ctypes.string_at(0)", "crash"),
    "leaves": ("os._exit(0)", "crash"),
    "exits": ("sys.exit(0)", "crash"),
    "deadlocks": ("self.receive(0) if self.device_id else self.receive(1)", "deadlock"),
    "tells_nothing": ("tell()", "rule"),
    "tells_no_arrays": ("tell(results=[1, 2], outputs=[], readings=[], wire=[])", "rule"),
    "tells_a_pickle": ("tell(results=base64.b64encode(b'cos\\nsystem\\n').decode())", "rule"),
    "tells_an_endless_array": (
        "tell(results={'list': [{'array': ['<f4', [10**12], '']}]}, outputs=[], readings=[], wire=[])", "rule",
    ),
    "tells_an_array_of_objects": (
        "tell(results={'list': [{'array': ['|O', [1], base64.b64encode(b'8' * 8).decode()]}]})", "rule",
    ),
    "tells_a_strange_type": ("tell(results={'array': ['f4,(1000000,1000000)i8', [1], '']})", "rule"),
    "tells_a_negative_shape": ("tell(results={'array': ['<f4', [-1], '']})", "rule"),
    "tells_deep_lists": ("os.write(3, b'{\"results\":' + b'[' * 9000 + b']' * 9000 + b'}\\n'); os._exit(0)", "crash", "rule"),  # Python 3.13 reads such lists
    "tells_too_much": ("while True: os.write(3, b'x' * 65536)", "crash"),
}  # fmt: skip
"""Of a class that computes nothing."""

RETURNS = {
    "a_text": ("'passed'", "rule"),
    "an_array_of_nan": ("np.full_like(x, np.nan)", "rule"),
    "infinity": ("np.full_like(x, np.inf)", "rule"),
    "a_huge_integer": ("10**100", "rule"),
    "an_integer_beyond_reading": ("10**10000", "crash"),
    "objects": ("np.array([object()])", "rule"),
    "complex_numbers": ("x * 1j", "rule"),
    "a_lying_equality": ("type('L', (), {'__eq__': lambda *a: True, 'shape': (2, 16)})()", "rule"),
    "a_lying_array": ("x.view(type('L', (np.ndarray,), {'__eq__': lambda *a: True}))", "rule"),
    "a_lying_class": ("type('L', (), {'__class__': np.ndarray})()", "rule"),
    "itself": ("[l := [], l.append(l)][0]", "crash"),
}
"""Values that `forward` returns instead of a right result."""

LAYOUTS = {
    "forges_strategies": ("graph.strategies = 'passed'", "layout"),
    "forges_text": ("graph.strategies['matmul2'] = 'passed'", "layout"),
    "forges_nan": ("graph.strategies['matmul2'] = ((float('nan'), 1), (1, 1))", "layout"),
    "forges_huge_integers": ("graph.strategies['matmul2'] = ((10**30, 1), (1, 1))", "layout"),
    "forges_unreadable_integers": ("graph.strategies['matmul2'] = ((10**9999, 1), (1, 1))", "crash"),
    "forges_zero": ("graph.strategies['matmul2'] = ((0, 1), (1, 1))", "layout"),
    "forges_nesting": (
        "deep = []\n    for _ in range(900): deep = [deep]\n    graph.strategies['matmul2'] = deep", "layout", "crash",
    ),
    "forges_names": ("graph.strategies.update({('a',): ((1, 1),), 5: ((1, 1),)})", "layout"),
    "forges_an_operator": ("graph.strategies['no such'] = ((1, 1),)", "layout"),
    "forges_many": ("graph.strategies.update({f'op{i}': ((1, 1),) for i in range(9999)})", "annotations"),
    "lies_about_numbers": (
        "graph.strategies['matmul2'] = ((type('L', (int,), {'__eq__': lambda *a: True})(8), 1), (1, 1))", "layout",
    ),
    "changes_what_is_given": ("graph.strategies['matmul1'] = ((8, 1), (1, 1))", "annotations"),
    "makes_elements_small": ("graph.itemsize = 0", "over"),
    "makes_tensors_small": ("graph.shapes.update({n: (1, 1) for n in graph.shapes})", "over"),
    "empties_the_graph": ("graph.operators.clear()", "over"),
    "patches_propagate": ("import lib.layout\n    lib.layout.propagate = lambda *a: None", "over"),
    "patches_bytes": ("import lib.layout\n    lib.layout.GraphPlan.bytes = lib.layout.GraphPlan.memory = 0", "over"),
    "patches_shard": ("type(graph).shard = lambda *a: None", "over"),
    "raises_the_target": (
        "from puzzles.tracks.layout import LAYOUT_PUZZLES as p\n    object.__setattr__(p['ffn'], 'target', 10**9)", "crash",
    ),
    "tells_the_verdict": (
        "import os\n    os.write(3, b'{\"status\": \"passed\", \"stars\": 3, \"bytes\": 0}\\n')\n    os._exit(0)", "layout",
    ),
    "imports_the_solution": ("from solutions.layout.ffn import ffn as f\n    f(graph)", "crash"),
    "loops_for_ever": ("while True: pass", "timeout"),
    "hogs_memory": ("hog = [bytearray(10**8) for _ in range(999)]", "memory"),
    "leaves": ("import os\n    os._exit(0)", "crash"),
}  # fmt: skip
"""The body of `ffn(graph)`."""
