"""Submissions that are hostile or odd, each with the verdict that it must get. Data for `test_hostile.py`.

`{body}` cases are the body of `basic(model)`, after the imports below. A reason of None means: passes.
"""

from pathlib import Path
from textwrap import dedent, indent

SOLVED = (Path(__file__).parents[2] / "solutions" / "basic.py").read_text(encoding="utf-8")
DDP = (Path(__file__).parents[2] / "solutions" / "ddp.py").read_text(encoding="utf-8")

IMPORTS = """\
import asyncio, atexit, builtins, ctypes, gc, json, os, resource, signal, subprocess, sys, tempfile, threading, time
import lib
from lib import *
from lib.ledger.runner import run_nested

def made(change, *size):
    # Sends the trace of a right run of this size, changed; then the process ends.
    text = trace_to_json(run_nested(solved, *size).trace)
    os.write(3, (json.dumps({"trace": change(text)}) + "\\n").encode())
    os._exit(0)
"""

FORGING = {
    "prints_success": ("print('{\"status\": \"passed\", \"stars\": 3}')", "incomplete"),
    "patches_check": ("Model.check = classmethod(lambda *a: True)", "incomplete"),
    "patches_event": ("lib.ledger.trace.Event = lib.Event = lambda *a: None", "incomplete"),
    "patches_the_clock": ("type(model).time = property(lambda self: 0.0)", "incomplete"),
    "patches_the_price_of_time": ("model.run.game.prices.update(dict.fromkeys(model.run.game.prices, 0))\n{solve}", "rule"),
    "patches_memory": ("lib.Weight.memory = lib.Value.memory = lambda *a: 0\n{hoard}", "over"),
    "patches_the_referee": ("lib.referee = sys.modules['lib.ledger.referee'].referee = lambda *a: 1", "incomplete"),
    "patches_json": ("json.dumps = lambda *a, **k: '{\"trace\": \"passed\"}'", "rule"),
    "patches_the_encoder": ("json.JSONEncoder.encode = lambda *a: 'NaN'\n{solve}", "crash"),
    "patches_builtins": (  # for everybody but the event loop, which would stop
        "def lying(f):\n"
        "    def lie(*a, **k):\n"
        "        caller = sys._getframe(1).f_globals['__name__']\n"
        "        return f(*a, **k) if caller.startswith(('asyncio', 'selectors')) else 0\n"
        "    return lie\n"
        "builtins.len, builtins.max, builtins.sum = lying(len), lying(max), lying(sum)\n{solve}", None, "crash", "rule",
    ),
    "patches_assertions": ("builtins.AssertionError = builtins.Exception = OSError", "incomplete"),
    "patches_the_rules": ("lib.ledger.updates.complete = lambda *a: None", "incomplete"),
    "patches_the_local_rules": ("for k in list(lib.ledger.operations.LOCAL_RULES): lib.ledger.operations.LOCAL_RULES[k] = lambda *a: []", "crash", "incomplete"),
    "forges_a_log": ("model.log.append(Event('update', 0, 0, 0, 0, 0, []))", "crash", "incomplete", "rule"),
    "forges_a_row": ("os.write(3, b'{\"defined\": true, \"status\": \"passed\", \"stars\": 3}\\n'); os._exit(0)", "crash"),
    "forges_an_empty_trace": (
        "t = {'format': 'training-puzzles trace', 'version': 1, 'costs': 'classic', 'layers': 2, 'batches': 4,"
        " 'ranks': 1, 'operations': [[]]}\n"
        "os.write(3, (json.dumps({'defined': True, 'failure': None, 'trace': json.dumps(t)}) + '\\n').encode())\n"
        "os._exit(0)",
        "incomplete",
    ),
    "forges_a_smaller_trace": (
        "made(str, 1, 1, 1)",
        "rule",
    ),
    "forges_cheaper_costs": (
        "made(lambda t: t.replace('classic', 'free'), 2, 4, 1)",
        "rule",
    ),
    "forges_infinite_times": (
        "made(lambda t: t.replace('[0,0]', '[-Infinity,NaN]'), 2, 4, 1)",
        "rule",
    ),
    "forges_deep_keys": (
        "made(lambda t: t.replace('\"key\":0', '\"key\":' + '[' * 900 + ']' * 900, 1), 2, 4, 1)",
        "noted", "rule",
    ),
    "sends_a_pickle": ("import pickle\nos.write(3, pickle.dumps({1: os.getpid()}) + b'\\n'); os._exit(0)", "crash"),
    "sends_too_deep_json": ("os.write(3, b'[' * 100000 + b'\\n'); os._exit(0)", "crash"),
    "sends_too_much": ("while True: os.write(3, b'x' * 65536)", "crash"),
    "sends_a_huge_number": ("os.write(3, b'{\"trace\": ' + b'9' * 100000 + b'}\\n'); os._exit(0)", "crash"),
    "claims_a_failure_with_stars": (
        "os.write(3, b'{\"failure\": [\"passed\", \"\", 0], \"trace\": null}\\n'); os._exit(0)", "crash",
    ),
    "fake_model": ("class Fake(Model): pass\nm = Fake(layers=2, batches=4)\nsolved(m)", "incomplete"),
    "fake_value": (
        "class Lie(Weight):\n    __eq__ = __hash__ = lambda *a: True\n"
        "model.set_final_weight(0, Lie(0, 2, 1))", "crash", "rule",
    ),
    "value_by_hand": ("for l in range(2): model.set_final_weight(l, Weight(l, 2, 1))", "rule"),
    "value_from_new": (
        "w, o = model.load_weights(0)\nv = object.__new__(Weight)\n"
        "model.set_final_weight(0, v)", "crash", "rule",
    ),
    "swaps_the_class_of_a_value": (
        "w, _ = model.load_weights(0)\nobject.__setattr__(w, 'step', 1)\n"
        "v, _ = model.load_weights(1)\nobject.__setattr__(v, 'step', 1)\n"
        "model.set_final_weight(0, w); model.set_final_weight(1, v)", "rule", "crash",
    ),
    "swaps_the_class_of_the_model": ("class M(Model): pass\nmodel.__class__ = M", "crash", "incomplete"),
    "sets_the_time": ("model.time = float('-inf')", "rule", "crash"),
    "time_is_not_a_number": ("model.fake_grad(0, [float('nan')])", "rule", "crash"),
    "writes_result_files": ("for n in ('results.json', 'grade.json'): open(n, 'w').write('passed')", "incomplete"),
    "guesses_pipes": (
        "for fd in range(3, 64):\n    try: os.write(fd, b'{\"trace\": null, \"passed\": true}\\n')\n    except OSError: pass",
        "incomplete",
    ),
    "guesses_the_supervisors_pipes": (
        "for fd in range(64):\n    try: open(f'/proc/{os.getppid()}/fd/{fd}', 'wb', 0).write(b'x' * 99)\n"
        "    except OSError: pass", "incomplete",
    ),
    "edits_at_exit": ("atexit.register(lambda: os.write(3, b'{\"trace\": \"\"}\\n'))", "incomplete"),
    "edits_from_a_thread": (
        "def later():\n    while True: os.write(3, b'{\"passed\": true}\\n'); time.sleep(0)\n"
        "threading.Thread(target=later, daemon=True).start()", "crash",
    ),
    "edits_by_gc": (
        "for o in gc.get_objects():\n"
        "    if type(o).__name__ == 'DefinitionRun': o._send = lambda *a, **k: os.write(3, b'{\"defined\": true}\\n')",
        "crash",
    ),
    "edits_frames": (
        "f = sys._getframe()\nwhile f:\n"
        "    for name, value in dict(error=None, failure=None, trace='x').items(): f.f_locals[name] = value\n"
        "    f = f.f_back",
        "incomplete",
    ),
    "kills_the_supervisor": ("os.kill(os.getppid(), 9)\n{solve}", None, "crash"),
    "traces_the_supervisor": ("ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)", "incomplete"),
}  # fmt: skip

BREAKING = {
    "hides_values_in_a_list": ("{hide}", "over"),
    "shrinks_the_problem": ("model.LAYERS = 1\nsolved(model)", "rule", "crash", "incomplete"),
    "shrinks_by_the_back_door": ("model.__dict__['LAYERS'] = 1\nsolved(model)", "rule", "crash", "incomplete"),
    "uses_a_private_model": (
        "m = Model(0, Dist(1), 2, 4)\nsolved(m)\n"
        "for l in range(2): model.set_final_weight(l, m.final_weights[l])", "rule", "crash", "incomplete",
    ),
    "imports_the_solution": ("from solutions.basic import basic as b; b(model)", "crash"),
    "reads_the_solution": (
        "exec(open(os.path.join(os.path.dirname(os.path.dirname(lib.__file__)), 'solutions', 'basic.py')).read(), globals())"
        "\nbasic(model)", "crash",
    ),
    "replays_a_cached_trace": (
        "made(str, 2, 4, 1)", "noted",
    ),
}  # fmt: skip

RESOURCES = {
    "endless_loop": ("while True: pass", "timeout"),
    "sleeps_for_years": ("time.sleep(10**9)", "timeout"),
    "stops_the_event_loop": (  # up to Python 3.12 its selector refuses to wait for nothing; later it turns for ever
        "builtins.len = builtins.max = builtins.sum = lambda *a: 0\n{solve}", "crash", "timeout",
    ),
    "awaits_for_years": ("asyncio.run(asyncio.sleep(10**9))", "crash", "timeout"),
    "catches_everything": ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "timeout"),
    "ignores_signals": (
        "for s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while True: pass", "timeout",
    ),
    "blocks_signals": ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass", "timeout"),
    "hogs_memory": ("hog = [bytearray(10**8) for _ in range(1000)]", "memory"),
    "hogs_memory_at_once": ("bytearray(10**12)", "memory"),
    "floods_the_output": ("while True: os.write(1, b'x' * 65536)", "crash"),
    "floods_the_errors": ("while True: os.write(2, b'x' * 65536)", "crash"),
    "forks": ("while True:\n    if os.fork() == 0: time.sleep(100)", "crash"),
    "forks_and_forks": ("while True:\n    try: os.fork()\n    except OSError: pass", "timeout"),
    "starts_programs": ("for _ in range(99): subprocess.Popen(['sleep', '100'])", "crash"),
    "starts_a_thread": ("threading.Thread(target=print).start()\n{solve}", "crash"),
    "starts_a_thread_without_asking": ("import _thread\n_thread.start_new_thread(print, ())\n{solve}", "crash"),
    "lets_the_event_loop_start_one": ("asyncio.run(asyncio.to_thread(print))\n{solve}", "crash"),
    "leaves_a_daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 64)\n        time.sleep(1000)\n"
        "    os._exit(0)\n{solve}", None,
    ),
    "segfault": ("ctypes.string_at(0)", "crash"),
    "aborts": ("os.abort()", "crash"),
    "exits_quietly": ("os._exit(0)", "crash"),
    "exits_loudly": ("os._exit(77)", "crash"),
    "kills_itself": ("os.kill(os.getpid(), 9)", "memory"),
    "kills_its_group": ("os.killpg(0, 15)", "crash"),
    "closes_file_descriptors": ("os.closerange(0, 4096)", "crash"),
    "raises_its_limits": ("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "crash"),
    "writes_a_huge_file": ("open('big', 'wb').write(b'x' * 10**8)", "crash"),
    "opens_many_files": ("keep = [open(os.devnull) for _ in range(10**5)]", "crash"),
    "recurses_in_c": ("sys.setrecursionlimit(10**9)\nf = lambda: [].sort(key=f()) or f()\nf()", "crash", "memory", "timeout"),
    "exits": ("sys.exit(0)", "crash"),
}  # fmt: skip

WHOLE_FILES = {
    "empty": (b"", "nothing"),
    "only_a_bom": (b"\xef\xbb\xbf", "nothing"),
    "bom_and_crlf": (b"\xef\xbb\xbf" + SOLVED.replace("\n", "\r\n").encode(), None),
    "nul_bytes": (b"def basic(model): pass\n\0", "syntax"),
    "not_utf8": (b"def basic(model): pass\n# \xff\xfe", "syntax"),
    "syntax_error": (b"def basic(model):\n  x = = 1", "syntax"),
    "missing_package": (b"import no_such_thing\ndef basic(model): no_such_thing", "crash"),
    "unprintable_output": (b"print('\\ud800\\x1b[2J\\x07')\n" + SOLVED.encode(), None),
    "deep_nesting": (b"def basic(model): return " + b"[" * 10_000 + b"]" * 10_000, "syntax"),
    "deep_operators": (b"def basic(model): return " + b"-" * 200_000 + b"1", "syntax"),
    "deep_attributes": (b"def basic(model): return model" + b".a" * 100_000, "syntax"),
    "three_megabytes": (SOLVED.encode() + b"# padding\n" * 300_000, None),
    "too_large": (b"def basic(model): pass\n" + b"#" * (17 << 20), "nothing"),
    "callable_object": (
        SOLVED.replace("def basic", "def train").encode()
        + b"\nclass Trainer:\n    def __call__(self, model): return train(model)\nbasic = Trainer()\n", None,
    ),
    "no_callable": (b"basic = 'passed'", "crash"),
    "lying_callable": (b"class L:\n    __call__ = 5\n    __class__ = int\nbasic = L()", "crash"),
    "endless_at_import": (b"def basic(model): pass\nwhile True: pass", "timeout"),
    "exits_at_import": (b"import os\ndef basic(model): pass\nos._exit(0)", "crash"),
    "odd_exception": (
        b"class E(Exception):\n    __name__ = 5\n    def __str__(self): raise SystemExit\ndef basic(model): raise E", "crash",
    ),
}  # fmt: skip

CONTROLS = {
    "noisy": "import sys\nprint('loading', file=sys.stderr)\n"
    + SOLVED.replace("    return model", "    print('x' * 10**5)"),
    "warns": "import warnings\nwarnings.warn('careful')\n" + SOLVED,
    "catches_refusals": SOLVED.replace(
        "    return model", "    try: model.loss(5)\n    except AssertionError: pass\n    return model"
    ),
    "writes_into_its_folder": SOLVED.replace(
        "    return model", "    open('notes.txt', 'w').write('x')\n    return model"
    ),
    "uses_a_process": "import os\nif os.fork() == 0: os._exit(0)\n" + SOLVED,
    "has_a_main": SOLVED + "\nif __name__ == '__main__':\n    raise SystemExit\n",
    "returns_nonsense": SOLVED.replace("    return model", "    return float('nan')"),
    "calls_exit_in_a_handler": "import atexit, os\natexit.register(os._exit, 3)\n" + SOLVED,
}

SOLVE = "solved(model)"
HOARD = "keep = [model.get_activation(range(4)) for _ in range(20)]\nfor i, a in enumerate(keep): model.storage()[2][i, 'x'] = a\nsolved(model)"
HIDE = "keep = [model.get_activation(range(4)) for _ in range(20)]\nsolved(model)\nfor a in keep: model.storage()[2]['x'] = a"


def basic_with(body: str) -> str:
    """A whole file with this body of `basic`; the right solution is there too, under the name `solved`."""
    body = body.replace("{solve}", SOLVE).replace("{hoard}", HOARD).replace("{hide}", HIDE)
    return (
        IMPORTS
        + SOLVED.replace("def basic", "def solved")
        + "\ndef basic(model):\n"
        + indent(dedent(body), "    ")
        + "\n"
    )
