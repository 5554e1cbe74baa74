// Keyboard and pointer: zoom, pan, selection, the play cursor, the theme. Shares its scope with rendering.js.

// --- Moving about ---

function look(from, to) {
  const span = Math.min(Math.max(to - from, 0.4), whole);
  state.from = Math.min(Math.max(from, 0), whole - span);
  state.to = state.from + span;
  redraw();
}

function zoom(factor, about) {
  look(about - (about - state.from) * factor, about + (state.to - about) * factor);
}

const middle = () => (state.chosen >= 0 ? (run.start[state.chosen] + run.stop[state.chosen]) / 2 : (state.from + state.to) / 2);
const pan = (share) => look(state.from + share * (state.to - state.from), state.to + share * (state.to - state.from));

function describe(i) {
  if (i < 0) return "";
  const few = (list) => list.slice(0, 6).map((j) => run.words[j].replace(/, t=.*/, "")).join("; ")
    + (list.length > 6 ? ` and ${list.length - 6} more` : "") || "nothing";
  return `${run.words[i]}. Needs: ${few(needsOf(i))}. Needed by: ${few(usersOf(i))}.`;
}

function choose(i) {
  state.chosen = i;
  $("told").textContent = i < 0 ? INVITATION : describe(i);
  if (i >= 0 && (run.start[i] < state.from || run.stop[i] > state.to)) {
    const half = (state.to - state.from) / 2, at = (run.start[i] + run.stop[i]) / 2;
    look(at - half, at + half);
  }
  redraw();
}

function nearest(rank, time) {
  const list = (rows[rank * streams] || []).length ? rows[rank * streams] : lanes[rank] || [];
  return list.length ? list[Math.min(firstAfter(list, time + 1e-9), list.length - 1)] : -1;
}

function step(key) {
  const i = state.chosen;
  if (i < 0) {
    const rank = lanes.findIndex((list) => list.length);
    return rank < 0 ? -1 : key === "End" ? lanes[rank][lanes[rank].length - 1] : nearest(rank, state.from);
  }
  const rank = run.rank[i], list = lanes[rank], at = list.indexOf(i);
  if (key === "ArrowRight") return list[Math.min(at + 1, list.length - 1)];
  if (key === "ArrowLeft") return list[Math.max(at - 1, 0)];
  if (key === "Home") return list[0];
  if (key === "End") return list[list.length - 1];
  const way = key === "ArrowUp" ? -1 : 1;
  for (let other = rank + way; other >= 0 && other < run.ranks; other += way)
    if (lanes[other].length) return nearest(other, run.start[i]);
  return i;
}

const moves = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];
const keys = {
  "+": () => zoom(1 / 1.5, middle()), "=": () => zoom(1 / 1.5, middle()), "-": () => zoom(1.5, middle()),
  "0": () => look(0, whole), "c": () => toggleCritical(), " ": () => play(!state.playing),
  "Escape": () => choose(-1),
  "n": () => state.chosen >= 0 && needsOf(state.chosen).length && choose(needsOf(state.chosen)[0]),
  "u": () => state.chosen >= 0 && usersOf(state.chosen).length && choose(usersOf(state.chosen)[0]),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.shiftKey && key.startsWith("Arrow")) pan(key === "ArrowRight" ? 0.2 : key === "ArrowLeft" ? -0.2 : 0);
  else if (moves.includes(key)) choose(step(key));
  else if (keys[key]) keys[key]();
  else return;
  event.preventDefault();
});

// --- Pointing ---

function under(event) {
  const rank = Math.floor((event.offsetY - AXIS) / pitch), time = timeAt(event.offsetX);
  if (rank < 0 || rank >= run.ranks || event.offsetX < LEFT - 8) return { event: -1 };
  const high = event.offsetY - top(rank), stream = run.streams.findLastIndex((_, n) => n === 0 || high >= streamTop(n));
  const list = rows[rank * streams + stream], near = 5 / (width - LEFT - RIGHT) * (state.to - state.from);
  for (let k = firstAfter(list, time - near); k < list.length && run.start[list[k]] <= time + near; k++) {
    const i = list[k], instant = run.start[i] === run.stop[i];
    if (instant || (run.start[i] <= time && time <= run.stop[i])) return { event: i, words: run.words[i] };
  }
  const gap = stream === 0 && gapsOf[rank].find(([, start, end]) => start <= time && time <= end);
  return { event: -1, words: gap && gap[3] };
}

let held = null;
canvas.addEventListener("pointermove", (event) => {
  if (held !== null) {
    if (Math.abs(event.clientX - held.start) > 4) held.moved = true;
    const shift = (held.x - event.clientX) / (width - LEFT - RIGHT) * (state.to - state.from);
    held.x = event.clientX;
    if (held.moved) return look(state.from + shift, state.to + shift);
  }
  const found = under(event), tip = $("tip");
  if (found.event !== state.pointed) { state.pointed = found.event; redraw(); }
  if (state.chosen < 0) $("told").textContent = found.event >= 0 ? describe(found.event) : found.words || INVITATION;
  tip.hidden = !found.words;
  tip.textContent = found.words || "";
  tip.style.left = `${Math.max(4, Math.min(event.pageX + 14, root.clientWidth - 350))}px`;
  tip.style.top = `${event.pageY + 18}px`;
});
canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, start: event.clientX, moved: false }; });
window.addEventListener("pointerup", (event) => {
  if (held && !held.moved && event.target === canvas) choose(under(event).event);
  held = null;
});
canvas.addEventListener("pointerleave", () => { state.pointed = -1; $("tip").hidden = true; redraw(); });
canvas.addEventListener("wheel", (event) => {
  if (event.ctrlKey) zoom(Math.exp(event.deltaY / 300), timeAt(event.offsetX));
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / width);
  else return;
  event.preventDefault();
}, { passive: false });

// --- The bar ---

function moveTo(time) {
  state.cursor = Math.min(Math.max(time, 0), whole);
  $("time").value = state.cursor / whole;
  $("clock").textContent = `t=${plain(state.cursor)}`;
  if (state.playing && (state.cursor > state.to || state.cursor < state.from)) {
    look(state.cursor, state.cursor + state.to - state.from);
  }
  redraw();
}

function play(on) {
  state.playing = on;
  $("play").setAttribute("aria-pressed", on);
  if (!on) return;
  if (state.cursor >= whole) moveTo(0);
  let before = performance.now();
  requestAnimationFrame(function go(now) {
    if (!state.playing) return;
    moveTo(state.cursor + Math.max(now - before, 0) / 1000 * whole / SECONDS);
    before = now;
    if (state.cursor >= whole) play(false); else requestAnimationFrame(go);
  });
}

function toggleCritical() {
  state.critical = !state.critical;
  $("critical").setAttribute("aria-pressed", state.critical);
  redraw();
}

function theme(dark) {
  state.dark = dark ? 1 : 0;
  root.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", dark);
  for (const item of document.querySelectorAll(".kind")) item.style.background = run.memory.fills[item.dataset.kind][state.dark];
  for (const item of document.querySelectorAll("[data-swatch]")) {
    const swatch = run.swatches[item.dataset.swatch];
    if (!swatch) continue;
    item.className = "filled";
    [item.style.background, item.style.color] = swatch.map((tones) => tones[state.dark]);
  }
  redraw();
}

function fit() {
  const ratio = window.devicePixelRatio || 1, height = floorOf(run.ranks - 1) + 6;
  width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  redraw();
}

$("play").onclick = () => play(!state.playing);
$("time").oninput = () => { play(false); moveTo($("time").value * whole); };
$("closer").onclick = () => zoom(1 / 1.5, middle());
$("wider").onclick = () => zoom(1.5, middle());
$("whole").onclick = () => look(0, whole);
$("critical").onclick = toggleCritical;
$("theme").onclick = () => theme(!state.dark);
const wanted = window.matchMedia("(prefers-color-scheme: dark)");
wanted.addEventListener("change", () => theme(wanted.matches));
new ResizeObserver(fit).observe(canvas.parentElement);
$("told").textContent = INVITATION;
theme(wanted.matches);
moveTo(whole);
fit();
