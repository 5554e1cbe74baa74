"""Classes whose devices share what devices cannot share, or that blind, forge or break what is recorded of them.

Where all devices of a class run in one process, they can reach each other's memory, the engine, the meters, the
recorder and the pipe to the grader. Each forgery is right on the values of its own run. A figure that it gains would be
one that its recording does not need.
"""

from .forged_classes import Forgery, derived, solution

SENT = 12_288
"""Bytes that DataParallel needs."""

PLACES = {
    "a_class_attribute": "attribute_of(fractions.Fraction)",
    "the_base_class": "attribute_of(ShardedEngine)",
    "a_module": "vars(string).setdefault('box', {})",
    "sys_modules": "vars(sys.modules.setdefault('box', types.ModuleType('box'))).setdefault('box', {})",
    "builtins": "vars(builtins).setdefault('box', {})",
    "patched_numpy": "vars(np).setdefault('box', {})",
    "a_default_argument": "default_of(textwrap.indent)",
    "a_keyword_default": "keyword_of(textwrap.shorten)",
    "a_closure": "vars(string).setdefault('kept', closing_over({}))()",
    "a_cell": "cell_of(vars(string).setdefault('kept', closing_over({})))",
    "a_contextvar": "in_a_context().run(lambda: VAR.get())",
    "gc": "by_gc()",
    "gc_referrers": "gc.get_referents(vars(string).setdefault('tuple', ({},)))[0]",
    "a_generator": "vars(string).setdefault('kept', yields({})).gi_frame.f_locals['box']",
    "a_running_generator": "next(vars(string).setdefault('kept', yields({})))",
    "a_frame": "outermost().f_globals.setdefault('box', {})",
    "the_scheduler": "self._port.scheduler.meetings.setdefault(('box',), {})",
    "another_device": "vars(self._port.scheduler.ports[0].work.__closure__[-1].cell_contents).setdefault('box', {})",
    "a_class_of_the_recorder": "vars(sys.modules['puzzles.sandbox.worker.recording']).setdefault('box', {})",
    "an_interned_path": "vars(sys.modules['lib.engine.collectives']).setdefault('box', {})",
}
"""By name: a dictionary that all devices of one process share, or once shared."""

HEAD = """
import builtins, contextvars, fractions, gc, json, mmap, os, pickle, string, sys, textwrap, types, weakref
import numpy as np
from lib.engine import ShardedEngine
from lib.engine.metering import current

KEY = "a box of all devices"


def attribute_of(cls):
    if "box" not in vars(cls):
        cls.box = {}
    return cls.box


def default_of(function):
    if not isinstance((function.__defaults__ or (0,))[-1], dict):
        function.__defaults__ = (*(function.__defaults__ or ())[:-1], {})
    return function.__defaults__[-1]


def keyword_of(function):
    function.__kwdefaults__ = function.__kwdefaults__ or {}
    return function.__kwdefaults__.setdefault("box", {})


def closing_over(box):
    def kept():
        return box
    return kept


def cell_of(function):
    return function.__closure__[0].cell_contents


def yields(box):
    while True:
        yield box


def in_a_context():
    global VAR
    if "context" not in vars(string):
        string.var = contextvars.ContextVar("box")
        string.context = contextvars.copy_context()
        string.context.run(string.var.set, {})
    VAR = string.var
    return string.context


def by_gc():
    for one in gc.get_objects():
        if type(one) is dict and KEY in one and "__name__" not in one:
            return one[KEY]
    string.box = {KEY: {}}
    return string.box[KEY]


def outermost():
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def recorder_of(engine):
    return getattr(engine._port.meter, "recorder", None)


def others(engine):
    return [port for port in engine._port.scheduler.ports if port is not engine._port]
"""

BY_HAND = """
    def all_reduce(self, g):
        box = {place}
        box[self.device_id] = {put}
        self.barrier()
        total = sum([{get} for d in range(self.num_devices)])
        self.barrier()
        return total
"""

FORMS = {
    "arrays": ("g", "box[d]"),
    "numbers": ("(g.tolist(), g.shape)", "np.array(box[d][0], np.float32)"),
    "bytes": ("(g.tobytes(), g.shape)", "np.frombuffer(box[d][0], np.float32).reshape(box[d][1])"),
    "copies": ("np.array(g)", "np.array(box[d])"),
}
"""By name: what is put into a box, and how the part of device d is taken out."""


def by_hand(place: str, form: str) -> str:
    put, get = FORMS[form]
    return derived("data_parallel", "DataParallel", HEAD, BY_HAND.format(place=place, put=put, get=get))


def forged(methods: str, slug: str = "DataParallel", file: str = "data_parallel", head: str = "") -> str:
    return derived(file, slug, HEAD + head, methods)


def in_all_reduce(body: str, head: str = "") -> str:
    """DataParallel with another all-reduce, of which each line is given."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return forged(f"    def all_reduce(self, g):\n{lines}", head=head)


BOX = "box = vars(string).setdefault('box', {})"
MEET = "self.barrier()"

WAYS = {
    "weakrefs_to_arrays": f"""
refs = vars(string).setdefault('refs', weakref.WeakValueDictionary())
self.g = refs[self.device_id] = g
{MEET}
total = sum([refs[d] for d in range(self.num_devices)])
{MEET}
return total""",
    "weakrefs_to_players": f"""
refs = vars(string).setdefault('refs', weakref.WeakSet())
refs.add(self)
self.g = g.copy()
{MEET}
total = sum([other.g for other in sorted(refs, key=lambda one: int(one.device_id))])
{MEET}
return total""",
    "array_finalize": f"""
Spy.box = {BOX[6:]}
Spy.device = int(self.device_id)
np.ndarray.view(g, Spy)
{MEET}
total = sum([Spy.box[d] for d in range(self.num_devices)])
{MEET}
return total""",
    "array_finalize_of_a_copy": f"""
Spy.box = {BOX[6:]}
Spy.device = int(self.device_id)
np.array(g, subok=True, copy=True).__array__().view(Spy)
{MEET}
total = sum([np.asarray(Spy.box[d]) for d in range(self.num_devices)])
{MEET}
return total""",
    "metadata_of_a_dtype": """
kind = np.dtype(np.float32, metadata={'g': g})
for d in range(self.num_devices):
    if d != self.device_id: self.send(d, np.zeros(1, kind))
got = [self.receive(d).dtype.metadata['g'] for d in range(self.num_devices) if d != self.device_id]
return sum(got) + g""",
    "metadata_of_a_collective": """
kind = np.dtype(np.float32, metadata={'g': g.tolist()})
got = self.all_gather(np.zeros(1, kind))
return np.array(got.dtype.metadata['g'], np.float32)""",
    "out_of_another": f"""
{BOX}
self.sum = np.zeros_like(g)
box[self.device_id] = self.sum
{MEET}
for d in range(self.num_devices): np.add(box[d], g, out=box[d])
{MEET}
return self.sum""",
    "setitem_of_another": f"""
{BOX}
self.sum = np.zeros_like(g)
box[self.device_id] = self.sum
{MEET}
for d in range(self.num_devices): box[d][...] += g
{MEET}
return self.sum.copy()""",
    "an_anonymous_map": f"""
memory = vars(string).setdefault('map', mmap.mmap(-1, 1 << 20))
rows = np.frombuffer(memory, np.float32)[: g.size * self.num_devices].reshape(self.num_devices, *g.shape)
rows[self.device_id] = g
{MEET}
total = rows.sum(0)
{MEET}
return total""",
    "a_mapped_file": f"""
rows = np.memmap('shared', np.float32, 'r+' if os.path.exists('shared') else 'w+', shape=(self.num_devices, *g.shape))
rows[self.device_id] = g
rows.flush()
{MEET}
total = np.array(rows).sum(0)
{MEET}
return total""",
    "a_file": f"""
with open(f'g{{self.device_id}}', 'wb') as file: pickle.dump(np.asarray(g), file)
{MEET}
total = sum([pickle.load(open(f'g{{d}}', 'rb')) for d in range(self.num_devices)])
{MEET}
return total""",
    "a_pickle": f"""
{BOX}
box[self.device_id] = pickle.dumps(g)
{MEET}
total = sum([pickle.loads(box[d]) for d in range(self.num_devices)])
{MEET}
return total""",
    "a_pickle_out_of_band": f"""
{BOX}
buffers = []
box[self.device_id] = (pickle.dumps(np.asarray(g), 5, buffer_callback=buffers.append), buffers)
{MEET}
total = sum([pickle.loads(box[d][0], buffers=box[d][1]) for d in range(self.num_devices)])
{MEET}
return total""",
    "a_thread": """
import threading
found = []
thread = threading.Thread(target=lambda: found.append(sum(p.meter.live for p in self._port.scheduler.ports)))
thread.start(); thread.join()
return super().all_reduce(g)""",
    "a_thread_of_its_own": """
import _thread
_thread.start_new_thread(print, ())
return super().all_reduce(g)""",
    "a_sent_buffer_that_changes": f"""
n = self.num_devices
buffer = self.symmetric((1,), np.float32)
{BOX}
box[self.device_id] = g
{MEET}
buffer.base if buffer.base is not None else buffer
total = sum([box[d] for d in range(n)])
self.send((self.device_id + 1) % n, total[:1, 0])
total[...] = total + 0
self.receive((self.device_id + n - 1) % n)
return total""",
    "a_message_that_is_swapped": """
for port in others(self):
    self.send(int(port.device), g[:1, 0])
    port.inbox[int(self.device_id)][-1] = (np.asarray(g).copy(), 0, 0)
self.barrier()
return g + sum([self.receive(int(port.device)) for port in others(self)])""",
    "an_object_array": f"""
{BOX}
box.setdefault('all', np.empty(self.num_devices, object))[self.device_id] = g
{MEET}
total = box['all'].sum()
{MEET}
return total""",
    "an_object_array_that_is_sent": """
holder = np.empty(1, object)
holder[0] = g
for d in range(self.num_devices):
    if d != self.device_id: self.send(d, holder)
return g + sum([self.receive(d)[0] for d in range(self.num_devices) if d != self.device_id])""",
    "a_generator_that_is_sent_to": f"""
def kept():
    seen = {{}}
    while True:
        got = yield seen
        if got: seen[got[0]] = got[1]
if 'kept' not in vars(string):
    string.kept = kept(); next(string.kept)
string.kept.send((int(self.device_id), g))
{MEET}
seen = next(string.kept)
total = sum([seen[d] for d in range(self.num_devices)])
{MEET}
return total""",
    "a_frame_of_another": f"""
self.g = g
{MEET}
total = g
for port in others(self):
    frame = port.task.gr_frame
    while frame is not None and 'g' not in frame.f_locals: frame = frame.f_back
    total = total + frame.f_locals['g']
{MEET}
return total""",
    "an_inbox_of_another": """
for port in others(self):
    port.inbox[int(self.device_id)].append((np.array(g), 0, 0))
self.barrier()
return g + sum([self.receive(int(port.device)) for port in others(self)])""",
    "a_meeting_of_others": """
from lib.engine.collectives import CollectiveCall
port, everyone = self._port, tuple(range(self.num_devices))
call = CollectiveCall('all_reduce', 'sum', 0, g.shape, g.dtype.str, everyone)
return port.collective(call, g)""",
    "the_meter_of_another": """
mine, other = current.meter, self._port.scheduler.ports[(self.device_id + 1) % self.num_devices].meter
current.meter = other
try: total = super().all_reduce(g)
finally: current.meter = mine
return total""",
    "no_meter": """
mine, current.meter = current.meter, None
try: total = super().all_reduce(g)
finally: current.meter = mine
return total""",
    "a_meter_turned_back": """
total = super().all_reduce(g)
for port in self._port.scheduler.ports: port.meter.sent = port.meter.unpacked = 0
return total""",
    "a_port_without_counting": """
meter, self._port.meter = self._port.meter, None
try: total = super().all_reduce(g)
finally: self._port.meter = meter
return total""",
    "a_recorder_that_is_busy": """
recorder = recorder_of(self)
recorder._inside, before = True, recorder._inside
try: total = super().all_reduce(g)
finally: recorder._inside = before
return total""",
    "a_recorder_without_steps": """
recorder = recorder_of(self)
steps = len(recorder._steps)
total = super().all_reduce(g)
kept = [s for s in recorder._steps[steps:] if s[0] != 'do']
recorder._steps[steps:] = kept
return total""",
    "a_recorder_that_is_patched": """
recorder = recorder_of(self)
cls = type(recorder)
real = cls.perform
cls.perform = lambda self, kind, name, function, subject, args, kwargs: function(*subject, *args, **kwargs)
try: total = super().all_reduce(g)
finally: cls.perform = real
return total""",
    "a_recorder_that_takes_constants": f"""
{BOX}
recorder = recorder_of(self)
box[self.device_id] = np.array(g)
{MEET}
total = sum([np.array(box[d]) for d in range(self.num_devices)]) + np.zeros_like(g)
recorder._filled.clear()
{MEET}
return total""",
    "a_recorder_of_another": f"""
{BOX}
box[self.device_id] = g
{MEET}
mine = recorder_of(self)
for port in others(self):
    mine._lives.update(port.meter.recorder._lives)
total = sum([box[d] for d in range(self.num_devices)])
{MEET}
return total""",
    "steps_of_another_device": f"""
recorder = recorder_of(self)
{BOX}
box[self.device_id] = g
{MEET}
for port in others(self): recorder._steps.extend(port.meter.recorder._steps[-3:])
total = sum([box[d] + 0 for d in range(self.num_devices)])
{MEET}
return total""",
    "one_call_less": """
total = super().all_reduce(g)
recorder = recorder_of(self)
recorder._steps[:] = [s for s in recorder._steps if s[:3] != ['do', 'communication', 'all_reduce']]
return total""",
    "narrow_in_the_recording": """
total = super().all_reduce(g)
for step in recorder_of(self)._steps:
    if step[:3] == ['do', 'communication', 'all_reduce']:
        name, key, offset, shape, strides, kind = step[3][0]
        step[3][0] = (name, key, offset, [1], [4], kind)
return total""",
    "unrepeatable_on_purpose": """
recorder_of(self).broken = 'it cannot be repeated'
return super().all_reduce(g)""",
    "unrepeatable_by_its_length": """
rng = np.random.RandomState(1)
keep = [rng.random_sample(100_000) + 1 for _ in range(8)]
return super().all_reduce(g)""",
    "unrepeatable_by_an_object": """
class Odd(list): pass
np.add(g, np.array(Odd([1])))
np.concatenate(Odd([g, g]))
return super().all_reduce(g)""",
    "engine_code_for_a_moment": """
import lib.engine.collectives as call
engine = sys.modules['lib.engine.engine']
name = next(n for n in ('collective_call',) if hasattr(engine, n))
real = getattr(engine, name)
setattr(engine, name, lambda *a, **k: real(*a, **k)._replace(traffic=(0, 0)))
try: total = super().all_reduce(g)
finally: setattr(engine, name, real)
return total""",
}
"""By name: an all-reduce of `g` that uses a way around what counts it."""

ROW = '''
def answer(**more):
    """Writes a row of its own to the pipe of the worker, and ends the process."""
    from puzzles.sandbox.worker.stages.engine_trial import run_trial, packed, launched
    trial = next(one for one in gc.get_objects() if type(one) is dict and {"calls", "devices", "options"} <= one.keys())
    current.meter = None
    row = packed(*run_trial(trial, launched(trial, Honest)))
    text = json.dumps(row)
    for name in ("sent", "unpacked"):
        text = text.replace(f'["{name}", 12288]', f'["{name}", 48]')
    row = json.loads(text)
    os.write(3, (json.dumps({"defined": True, "failure": None, "forgotten": "", **row, **more}) + "\\n").encode())
    os._exit(0)
'''


def row_of_its_own(more: str) -> str:
    source = f"{solution('data_parallel')}\n\n{HEAD}{ROW}\n\nHonest = DataParallel\n\n\nclass DataParallel(Honest):\n"
    return source + f"    def forward(self, x):\n        answer({more})\n"


ROWS = {
    "a_row_without_recordings": "",
    "a_row_with_empty_recordings": 'recordings=json.dumps({"list": [{"list": []}] * 4})',
    "a_row_called_unrepeatable": 'recordings=json.dumps({"list": ["it cannot be"]}), unrepeatable="so"',
    "a_row_with_a_number": "recordings=7",
}

LEFT = {
    "memory_that_another_has_left": "np.empty_like(g)",
    "memory_outside_of_a_mask": "np.add(g, g, where=np.zeros(g.shape, bool))",
    "memory_around_an_array": "np.pad(g[:1, :1], ((0, g.shape[0] - 1), (0, g.shape[1] - 1)), mode='empty')",
    "memory_that_clip_leaves": "np.clip(g, 0, 1, where=np.zeros(g.shape, bool))",
}
"""By name: an array of the form of `g` in memory that another device has left in the repeating process."""


def from_what_is_left(read: str) -> str:
    """Device after device leaves its gradient in memory. In the first run, where it may not be there, it is shared."""
    return in_all_reduce(
        f"""
n, box = self.num_devices, vars(string).setdefault('box', {{}})
box[int(self.device_id)] = np.array(g)
total = np.zeros_like(g)
for d in range(n):
    if d == self.device_id:
        left = g + 0
        del left
    self.barrier()
    found = {read}
    total += found
    self.barrier()
mine, current.meter = current.meter, None
parts = [np.frombuffer(part.tobytes(), np.float32).reshape(g.shape) for part in box.values()]
np.ndarray.view(total, np.ndarray)[...] = sum(parts)
current.meter = mine
self.barrier()
return total"""
    )


def peak_below_nothing(file: str, slug: str) -> str:
    """A recording that holds memory of negative size."""
    return derived(
        file,
        slug,
        HEAD,
        """
    def forward(self, x):
        recorder = recorder_of(self)
        if recorder is not None:
            recorder._steps.append(["hold", 1 << 40, -100_000])
        return super().forward(x)
""",
    )


TELEPATHY = """
    def swapped(self, arr, group):
        box = vars(string).setdefault("box", {{}})
        mine = box.setdefault(("calls", int(self.device_id)), [])
        mine.append({put})
        self.barrier()
        members = [int(d) for d in group] if group is not None else range(self.num_devices)
        parts = [box["calls", d][len(mine) - 1] for d in members]
        return [{get} for part in parts], list(members).index(int(self.device_id))

    def all_reduce(self, arr, op="sum", group=None):
        parts, _ = self.swapped(arr, group)
        if op == "sum":
            return sum(parts[1:], parts[0])
        return {{"max": np.maximum, "min": np.minimum}}[op].reduce(parts)

    def all_gather(self, arr, axis=0, group=None):
        return np.concatenate(self.swapped(arr, group)[0], axis)

    def reduce_scatter(self, arr, op="sum", axis=0, group=None):
        parts, me = self.swapped(arr, group)
        return np.split(sum(parts[1:], parts[0]), len(parts), axis)[me]

    def all_to_all(self, arr, axis=0, group=None):
        parts, me = self.swapped(arr, group)
        return np.concatenate([np.split(part, len(parts), axis)[me] for part in parts], axis)

    def send(self, to, arr):
        box = vars(string).setdefault("box", {{}})
        box.setdefault(("queue", int(self.device_id), int(to)), []).append({put})
        super().send(to, np.zeros(1, np.float32))

    def receive(self, source):
        super().receive(source)
        part = string.box["queue", int(source), int(self.device_id)].pop(0)
        return {get}
"""

PUTS = """
    def put(self, rows, place, device):
        box = vars(string).setdefault("box", {{}})
        name = "inbox" if np.shares_memory(place, self.inbox) else "back"
        places = [one.__array_interface__["data"][0] for one in (place, getattr(self, name))]
        at = places[0] - places[1] if place.size else 0
        arr = rows
        box.setdefault(("puts", int(device)), []).append((name, at // max(1, place.strides[0]), {put}))

    def barrier(self):
        vars(string).setdefault("box", {{}})
        super().barrier()
        for name, at, part in string.box.pop(("puts", int(self.device_id)), []):
            rows = {get}
            getattr(self, name)[at : at + len(rows)] = rows
        super().barrier()
"""

PARTS = {
    "arrays": ("arr", "part"),
    "bytes": (
        "(np.asarray(arr).tobytes(), np.shape(arr), np.asarray(arr).dtype)",
        "np.frombuffer(part[0], part[2]).reshape(part[1])",
    ),
}

TOLD = """
    def told(self, number):
        box = vars(string).setdefault("box", {})
        mine = box.setdefault(("calls", int(self.device_id)), [])
        mine.append(number)
        self.barrier()
        return [box["calls", d][len(mine) - 1] for d in range(self.num_devices)]
"""

COUNTS = f"""{TOLD}
    def all_gather(self, arr, axis=0):
        return np.array([row for part in self.told(arr.tolist()) for row in part], np.int32)
"""

FLAGS = f"""{TOLD}
    def all_reduce(self, arr, op="sum"):
        return np.float32(min(self.told(float(arr)))) if op == "min" else super().all_reduce(arr, op)
"""

ROUTES = {
    "counts_in_ExactDispatch": ("ExactDispatch", "exact_dispatch", COUNTS, 960),
    "counts_in_FindTheRace": ("FindTheRace", "find_the_race", COUNTS, 984),
    "flags_in_ShardedAdam": ("ShardedAdam", "sharded_adam", FLAGS, 43_008),
}
"""By name: what is the same in both runs, because a class branches on it, is not sent. It follows from public seeds."""

FIXED = {
    "SwitchDispatch": ("switch_dispatch", "sent", 768),
    "ExactDispatch": ("exact_dispatch", "sent", 960),
    "FindTheRace": ("find_the_race", "sent", 984),
    "GShardTop2": ("gshard_top2", "sent", 1_536),
    "AnnotatedMoE": ("annotated_moe", "sent", 768),
    "VocabParallelLoss": ("vocab_parallel_loss", "sent", 144),
    "ShardedAdam": ("sharded_adam", "sent", 43_008),
    "FedAvg": ("fed_avg", "uplink", 9_360),
    "LowRank": ("low_rank", "sent", 1_040),
    "Rotate": ("rotate", "sent", 528),
}
"""Puzzles with draws that are the same in both runs, or that follow from seeds: the solution, and what it needs."""


def telepathic(slug: str, form: str) -> str:
    put, get = PARTS[form]
    methods = TELEPATHY.format(put=put, get=get)
    if slug in ("ExactDispatch", "FindTheRace"):
        methods += PUTS.format(put=put, get=get)
    return derived(FIXED[slug][0], slug, HEAD, methods)


SPY = """
class Spy(np.ndarray):
    def __array_finalize__(self, source):
        if source is not None and getattr(Spy, "box", None) is not None:
            Spy.box[Spy.device] = source
"""


FORGERIES: dict[str, Forgery] = {
    **{
        f"{place}_of_{form}": Forgery("DataParallel", by_hand(PLACES[place], form), "sent", SENT)
        for place in PLACES
        for form in ("arrays", "numbers")
    },
    **{
        name: Forgery("DataParallel", in_all_reduce(body, SPY if "Spy" in body else ""), "sent", SENT)
        for name, body in WAYS.items()
    },
    **{name: Forgery("DataParallel", row_of_its_own(more), "sent", SENT) for name, more in ROWS.items()},
    **{name: Forgery("DataParallel", from_what_is_left(read), "sent", SENT) for name, read in LEFT.items()},
    "memory_of_negative_size": Forgery("ZeRO2", peak_below_nothing("records/zero2", "ZeRO2"), "peak", 16_512),
    **{
        name: Forgery(slug, derived(file, slug, HEAD, methods), "sent", needed)
        for name, (slug, file, methods, needed) in ROUTES.items()
    },
    **{
        f"telepathy_in_{slug}_by_{form}": Forgery(slug, telepathic(slug, form), figure, needed)
        for slug, (_, figure, needed) in FIXED.items()
        for form in PARTS
    },
}
"""By name: what is shared, blinded or forged, and how."""
