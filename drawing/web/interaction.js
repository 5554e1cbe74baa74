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

const middle = () => {
  const i = state.chosen;
  return (i === -1 ? state.from + state.to : startOf(i) + stopOf(i)) / 2;
};
const pan = (share) => look(state.from + share * (state.to - state.from), state.to + share * (state.to - state.from));

function describe(i) {
  if (i < 0) return "";
  const few = (list) => list.slice(0, 6).map((j) => run.words[j].replace(/, t=.*/, "")).join("; ")
    + (list.length > 6 ? ` and ${list.length - 6} more` : "") || "nothing";
  return `${run.words[i]}. Needs: ${few(needsOf(i))}. Needed by: ${few(usersOf(i))}.`;
}

function choose(i) {
  state.chosen = i;
  $("told").textContent = i === -1 ? INVITATION : i < -1 ? gapAt(i)[3] : describe(i);
  if (i !== -1 && (startOf(i) < state.from || stopOf(i) > state.to)) {
    const half = (state.to - state.from) / 2, at = (startOf(i) + stopOf(i)) / 2;
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
  if (i === -1) {
    const rank = lanes.findIndex((list) => list.length);
    return rank < 0 ? -1 : key === "End" ? lanes[rank][lanes[rank].length - 1] : nearest(rank, state.from);
  }
  const rank = i < -1 ? gapAt(i)[0] : run.rank[i], list = stops[rank], at = list.indexOf(i);
  if (key === "ArrowRight") return list[Math.min(at + 1, list.length - 1)];
  if (key === "ArrowLeft") return list[Math.max(at - 1, 0)];
  const own = lanes[rank];
  if (key === "Home") return own.length ? own[0] : list[0];
  if (key === "End") return own.length ? own[own.length - 1] : list[list.length - 1];
  const way = key === "ArrowUp" ? -1 : 1;
  for (let other = rank + way; other >= 0 && other < run.ranks; other += way)
    if (lanes[other].length) return nearest(other, startOf(i));
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
  return gap ? { event: -2 - run.gaps.indexOf(gap), words: gap[3] } : { event: -1 };
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
  if (state.chosen === -1) $("told").textContent = found.event >= 0 ? describe(found.event) : found.words || INVITATION;
  tip.hidden = !found.words;
  tip.textContent = found.words || "";
  tip.style.left = `${Math.max(4, Math.min(event.pageX + 14, page.clientWidth - 350))}px`;
  tip.style.top = `${event.pageY + 18}px`;
});
canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, start: event.clientX, moved: false }; });
const leaving = new AbortController();
window.addEventListener("pointerup", (event) => {
  if (held && !held.moved && event.target === canvas) choose(under(event).event);
  held = null;
}, { signal: leaving.signal });
canvas.addEventListener("pointercancel", () => { held = null; });
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
  $("play").textContent = on ? "\u23f8 Pause" : "\u25b6 Play";
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
  page.dataset.theme = dark ? "dark" : "light";
  $("theme")?.setAttribute("aria-pressed", dark);
  for (const item of root.querySelectorAll(".kind")) item.style.background = fills[item.dataset.kind][state.dark];
  for (const item of root.querySelectorAll("[data-swatch]")) {
    const swatch = colouring().swatches[item.dataset.swatch];
    item.className = swatch ? "filled" : "";
    [item.style.background, item.style.color] = swatch ? swatch.map((tones) => tones[state.dark]) : ["", ""];
  }
  for (const item of root.querySelectorAll("[data-colour]")) item.hidden = !item.dataset.colour.split(" ").includes(state.colour);
  redraw();
}

function colour(by) {
  state.colour = canvas.dataset.colour = $("colour").value = by;
  theme(state.dark);
}

function fit() {
  const ratio = window.devicePixelRatio || 1, height = bottom;
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
$("colour").onchange = () => colour($("colour").value);
const wanted = window.matchMedia("(prefers-color-scheme: dark)");
if ($("theme")) {
  $("theme").onclick = () => theme(!state.dark);
  wanted.addEventListener("change", () => theme(wanted.matches), { signal: leaving.signal });
}
const resized = new ResizeObserver(fit);
resized.observe(canvas.parentElement);
$("told").textContent = INVITATION;
state.dark = wanted.matches ? 1 : 0;
colour(run.colour);
moveTo(whole);
fit();

function close() {
  play(false);
  leaving.abort();
  resized.disconnect();
}

// The whole run in steps of time: what `copy` makes of the canvas after each.
function frames(count, copy) {
  const before = { ...state };
  Object.assign(state, { from: 0, to: whole, chosen: -1, pointed: -1 });
  const made = Array.from({ length: count }, (_, i) => {
    state.cursor = (whole * (i + 1)) / count;
    draw();
    return copy();
  });
  Object.assign(state, before);
  redraw();
  return made;
}

return { theme, close, frames, choose };
