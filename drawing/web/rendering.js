// Rendering: the dependencies of operations, and how the run is drawn on the canvas. This is the first part of the body
// of viewer(root, run), where `run` is the data and `root` has the elements of viewer.html; legend.js and interaction.js are the others.

const $ = (id) => root.querySelector(`#${id}`);
const canvas = $("timeline"), pen = canvas.getContext("2d"), page = document.documentElement;
const LEFT = page.clientWidth < 500 ? 48 : 62, RIGHT = 14, AXIS = run.bands.length ? 42 : 26, HEAD = run.memory.most ? 42 : 0, UNIT = 20, SECONDS = 12;
const INVITATION = "Point at an operation, tap it, or press Tab and the arrow keys, to see what it needs and what needs it.";
// A `rank` here is a row of the picture: one rank, or several that do the same.
// It has a row for computation, and a lower one for each stream beside it.
// A page may give all rows together so much room, in pixels, as long as they can be read.
const ROOM = Number(root.dataset?.room) || 700;
const LANE_SCALE = 0.45, streams = run.streams.length, rowsHigh = 1 + LANE_SCALE * (streams - 1);
const compute = Math.max(6, Math.min(46, Math.max(ROOM, Math.min(14 * run.ranks, 700)) / run.ranks / rowsHigh)), pitch = compute * rowsHigh, strip = run.memory.most ? compute * 1.1 : 0;
const lane = pitch * 0.8, beside = streams > 1 ? (lane - compute * 0.8) / (streams - 1) : 0;
const streamTop = (stream) => (stream ? compute * 0.8 + (stream - 0.88) * beside : 0);
const streamHeight = (stream) => (stream ? beside * 0.88 : compute * 0.8);
const floorOf = (rank) => AXIS + run.ranks * pitch + HEAD + (rank + 1) * strip;
const barPitch = Math.min(20, pitch), barTop = (rank) => floorOf(run.ranks - 1) + HEAD + rank * barPitch;
const bottom = run.traffic.most ? barTop(run.ranks) : floorOf(run.ranks - 1) + 6;
const fills = [...run.memory.fills, ...run.traffic.fills];
const whole = Math.max(run.end, 0.1);
const state = { from: 0, to: whole, chosen: -1, pointed: -1, cursor: whole, playing: false, critical: false, dark: 0, colour: run.colour };
let width = 800, queued = false;

// Dependencies. Each member of a collective needs what all members contribute.
const lanes = Array.from({ length: run.ranks }, () => []), groupOf = new Map(), users = run.rank.map(() => []);
run.rank.forEach((rank, i) => lanes[rank].push(i));
const rows = Array.from({ length: run.ranks * streams }, () => []);
run.rank.forEach((rank, i) => rows[rank * streams + run.stream[i]].push(i));
const recomputed = new Set(run.again);
run.groups.forEach((group) => group.forEach((i) => groupOf.set(i, group)));
run.needs.forEach((list, i) => list.forEach((j) => users[j].push(i)));
const peers = (i) => groupOf.get(i) || [i];
const unique = (list) => [...new Set(list)];
const needsOf = (i) => unique(peers(i).flatMap((j) => run.needs[j]));
const usersOf = (i) => unique(peers(i).flatMap((j) => users[j]).flatMap(peers));
const gapsOf = lanes.map(() => []);
run.gaps.forEach((gap) => gapsOf[gap[0]].push(gap));

// What the arrow keys visit: a rank's operations, and before the one that ended it each idle time. Idle time g is -2 - g.
const gapAt = (i) => run.gaps[-2 - i];
const startOf = (i) => (i < -1 ? gapAt(i)[1] : run.start[i]), stopOf = (i) => (i < -1 ? gapAt(i)[2] : run.stop[i]);
const stops = lanes.map((list) => [...list]);
run.gaps.forEach(([rank, , end], g) => {
  const at = stops[rank].findIndex((i) => i >= 0 && !run.stream[i] && run.start[i] >= end - 1e-9);
  stops[rank].splice(at < 0 ? stops[rank].length : at, 0, -2 - g);
});

const x = (time) => LEFT + (width - LEFT - RIGHT) * (time - state.from) / (state.to - state.from);
const timeAt = (px) => state.from + (px - LEFT) / (width - LEFT - RIGHT) * (state.to - state.from);
const top = (rank) => AXIS + rank * pitch + (pitch - lane) / 2;
const topOf = (i) => top(run.rank[i]) + streamTop(run.stream[i]);
const heightOf = (i) => streamHeight(run.stream[i]);
const paint = (name) => run.colours[name][state.dark];
const colouring = () => run.colourings[state.colour];
const plain = (time) => String(Math.round(time * 1000) / 1000);
const css = (name) => getComputedStyle(page).getPropertyValue(name).trim();

// The first operation of a list that ends after a time; starts and ends in a lane are both in order.
function firstAfter(list, time) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.stop[list[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; draw(); });
}

function draw() {
  const focus = state.chosen >= 0 ? state.chosen : state.pointed;
  const needed = new Set(focus >= 0 ? needsOf(focus) : []), using = new Set(focus >= 0 ? usersOf(focus) : []);
  pen.clearRect(0, 0, width, canvas.height);
  drawAxis();
  pen.save();
  pen.beginPath();
  pen.rect(LEFT - 8, 0, width - LEFT - RIGHT + 16, canvas.height);
  pen.clip();
  drawSteps();
  drawGaps();
  drawGroups(focus);
  const related = (i) => focus < 0 || i === focus || needed.has(i) || using.has(i);
  drawUnderWay();
  for (const list of rows) drawLane(list, related);
  drawStepBorders();
  drawLinks(focus);
  if (state.critical) drawCritical();
  for (const i of needed) ring(i, css("--need"), []);
  for (const i of using) ring(i, css("--use"), [4, 3]);
  if (focus >= 0) ring(focus, paint("ink"), []);
  if (state.chosen < -1) ringAround(gapAt(state.chosen), paint("ink"));
  drawMemory();
  drawTimesteps();
  drawCursor();
  pen.restore();
  drawTraffic();
  Object.assign(canvas.dataset, {
    from: state.from, to: state.to, chosen: state.chosen, needs: [...needed].join(), users: [...using].join(),
    cursor: state.cursor, drawn: Number(canvas.dataset.drawn || 0) + 1,
  });
}

function write(text, px, py, size, colour, align = "center", bold = false) {
  pen.font = `${bold ? "bold " : ""}${size}px Helvetica, Arial, sans-serif`;
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, px, py);
}

// The longest of some wordings that fits, above the rows of a part.
function heading(y, ...wordings) {
  pen.font = "12px Helvetica, Arial, sans-serif";
  const fits = wordings.find((words) => pen.measureText(words).width <= width - LEFT) ?? wordings.at(-1);
  write(fits, LEFT, y, 12, paint("soft"), "left");
}

function drawAxis() {
  const wanted = (state.to - state.from) * 56 / (width - LEFT - RIGHT);
  let gap = 0.1;
  for (let e = 0; gap < wanted; e++) gap = [0.1, 0.2, 0.5][e % 3] * 10 ** Math.floor(e / 3);
  pen.strokeStyle = paint("grid");
  for (let i = Math.ceil(state.from / gap - 1e-9); i * gap <= state.to + 1e-9; i++) {
    const at = x(i * gap);
    line([[at, AXIS - 4], [at, floorOf(run.ranks - 1)]]);
    write(plain(i * gap), at, 10, 11, paint("soft"));
  }
  const every = Math.max(1, Math.ceil(11 / pitch)), size = Math.min(12, Math.max(9, compute * 0.5));
  for (let rank = 0; rank < run.ranks; rank += every) {
    const name = run.labels[rank], fits = Math.min(size, (LEFT - 10) / name.length / 0.56);
    write(name, LEFT - 10, top(rank) + streamHeight(0) / 2, fits, paint("soft"), "right");
    if (beside >= 9) run.streams.forEach((name, n) => {
      if (n) write(name, LEFT - 10, top(rank) + streamTop(n) + streamHeight(n) / 2, 9.5, paint("soft"), "right");
    });
    if (strip) write(name, LEFT - 10, floorOf(rank) - strip / 2, fits, paint("soft"), "right");
  }
  const most = run.memory.most.toLocaleString("en");
  if (strip) heading(floorOf(-1) - 26, `memory in elements, all ranks on one scale up to ${most}`, `memory, up to ${most} elements`);
}

// The start of the last operation, where the game's figure for time is.
function drawTimesteps() {
  if (!run.timesteps) return;
  const [time, words] = run.timesteps, at = x(time);
  if (at < LEFT || at > width - RIGHT + 1) return;
  pen.strokeStyle = paint("target");
  pen.setLineDash([5, 3]);
  line([[at, 16], [at, floorOf(run.ranks - 1)]]);
  pen.setLineDash([]);
  const isRight = at > LEFT + 110;
  write(words, at + (isRight ? -4 : 4), 20, 10, paint("target"), isRight ? "right" : "left", true);
}

function line(points) {
  pen.beginPath();
  points.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
  pen.stroke();
}

// Diagonal strokes within a box.
function hatch(x0, y0, x1, y1, gap, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x0, y0, x1 - x0, y1 - y0);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 0.8;
  pen.beginPath();
  const first = Math.max(x0, 0) - (y1 - y0), last = Math.min(x1, width);
  for (let at = Math.floor(first / gap) * gap; at < last; at += gap) {
    pen.moveTo(at, y1);
    pen.lineTo(at + (y1 - y0), y0);
  }
  pen.stroke();
  pen.restore();
}

// Training steps, where there are several: every other one is shaded, and those of rank 0 have their numbers.
function drawSteps() {
  for (const [rank, stream, start, end, step] of run.bands) {
    const x0 = Math.max(x(start), LEFT), x1 = Math.min(x(end), width - RIGHT);
    if (x1 <= x0) continue;
    const [y0, y1] = bandRow(rank, stream);
    if (step % 2) {
      pen.fillStyle = paint("step");
      pen.fillRect(x0, y0, x1 - x0, y1 - y0);
    }
    const words = [`step ${step}`, String(step)].find((text) => text.length * 6.5 + 6 < x1 - x0);
    if (!rank && !stream && words) write(words, x0 + 4, AXIS - 9, 11, paint("soft"), "left", true);
  }
}

function drawStepBorders() {
  pen.strokeStyle = paint("step_edge");
  pen.lineWidth = 1.4;
  for (const [rank, stream, start, end] of run.bands) {
    if (!start || end === start || x(start) < LEFT - 8 || x(start) > width) continue;
    const [y0, y1] = bandRow(rank, stream);
    line([[x(start), y0], [x(start), y1]]);
  }
  pen.lineWidth = 1;
}

// The rows of all ranks touch; the first reaches up to the axis.
function bandRow(rank, stream) {
  const y0 = stream ? top(rank) + streamTop(stream) : rank ? AXIS + rank * pitch : 18;
  return [y0, stream + 1 < streams ? top(rank) + streamTop(stream + 1) : AXIS + (rank + 1) * pitch];
}

function drawGaps() {
  const high = streamHeight(0);
  for (const [rank, start, end, , short] of run.gaps) {
    if (end < state.from || start > state.to) continue;
    const x0 = Math.max(x(start), LEFT - 8), x1 = Math.min(x(end), width), y0 = top(rank);
    if (x1 - x0 < 1) continue;
    pen.fillStyle = paint("idle");
    pen.fillRect(x0, y0, x1 - x0, high);
    if (x1 - x0 > 4) hatch(x0, y0, x1, y0 + high, 7, paint("idle_hatch"));
    if (compute >= 20 && x1 - x0 > short.length * 6 + 10) {
      pen.fillStyle = paint("idle");
      pen.fillRect((x0 + x1) / 2 - short.length * 3 - 4, y0 + high / 2 - 7, short.length * 6 + 8, 14);
      write(short, (x0 + x1) / 2, y0 + high / 2, 10.5, paint("soft"));
    }
  }
}

// Calls beside computation that do not run: from when they are made, and until they are awaited.
function drawUnderWay() {
  pen.strokeStyle = paint("under_way");
  pen.setLineDash([2, 2]);
  run.stream.forEach((stream, i) => {
    if (!stream) return;
    const y = topOf(i) + heightOf(i) / 2;
    for (const [start, end] of [[run.called[i], run.start[i]], [run.stop[i], run.awaited[i]]])
      if (start !== null && end !== null && end > start) line([[x(start), y], [x(end), y]]);
  });
  pen.setLineDash([]);
}

function drawGroups(focus) {
  pen.strokeStyle = paint("stroke");
  for (const group of run.groups) {
    const at = x((run.start[group[0]] + run.stop[group[0]]) / 2);
    if (at < LEFT - 8 || at > width) continue;
    pen.lineWidth = focus >= 0 && group.includes(focus) ? 4 : 1.5;
    const last = group[group.length - 1];
    line([[at, topOf(group[0])], [at, topOf(last) + heightOf(last)]]);
  }
  pen.lineWidth = 1;
}

function drawLane(list, related) {
  let last = -1;
  const late = [];
  for (let k = firstAfter(list, state.from); k < list.length && run.start[list[k]] <= state.to; k++) {
    const i = list[k], x0 = x(run.start[i]), x1 = x(run.stop[i]);
    if (run.start[i] === run.stop[i]) late.push(i);
    // Of operations narrower than a pixel, only one is drawn.
    else if (x1 - x0 >= 1 || x1 > last + 1) { mark(i, x0, Math.max(x1, x0 + 1), related(i)); last = x1; }
  }
  for (const i of late) {
    const at = x(run.start[i]);
    mark(i, at, at, related(i));
  }
}

// The ends keep their shape, and the middle is stretched.
function stretch(px, w) {
  if (w < UNIT) return px * w / UNIT;
  return px < UNIT / 2 ? px : px > UNIT / 2 ? w - (UNIT - px) : w / 2;
}

function mark(i, x0, x1, related) {
  const look = colouring().looks[colouring().look[i]], y = topOf(i), high = heightOf(i), w = x1 - x0, instant = run.start[i] === run.stop[i];
  if (instant && !look.pin) return; // a free message is its link, and a free update has no width
  const future = run.start[i] >= state.cursor && state.cursor < whole;
  pen.globalAlpha = (related ? 1 : 0.28) * (future ? 0.25 : 1);
  pen.fillStyle = look.fill[state.dark];
  if (w < 3 && !instant) {
    if (look.line >= 2) pen.fillStyle = look.stroke[state.dark]; // hollow: there is room only for its border
    pen.fillRect(x0, y, w, high);
  } else {
    pen.beginPath();
    look.outline.forEach(([px, py], n) => {
      const at = [x0 + (instant ? px : stretch(px, w)), y + py * high / UNIT];
      if (n) pen.lineTo(...at); else pen.moveTo(...at);
    });
    pen.closePath();
    pen.fill();
    pen.strokeStyle = look.stroke[state.dark];
    pen.lineWidth = look.line;
    pen.stroke();
    if (recomputed.has(i) && w > 6) hatch(x0 + 5, y, x1 - 5, y + high, 5, paint("paper"));
    if (look.bar) bar(look, x0, y, w, high);
    if (!instant) label(colouring().label[i], x0, y, w, high, look.ink[state.dark]);
    else if (high >= 24) write(colouring().label[i][0], x0, y - high * 0.2 + high * 0.27, 9, look.ink[state.dark], "center", true);
  }
  pen.globalAlpha = 1;
  pen.lineWidth = 1;
}

// Along the bottom of a box: which chunk of its rank.
function bar(look, x0, y, w, high) {
  const inset = Math.min(5, w / 4), thick = Math.min(2, high / 8);
  pen.fillStyle = look.ink[state.dark];
  pen.fillRect(x0 + inset, y + high - 2 * thick, (w - 2 * inset) * look.bar, thick);
}

function label([first, second, narrow = first], x0, y, w, high, ink) {
  const both = second ? `${first} ${second}` : first, room = w - (second || /\d/.test(both) ? 8 : 2), size = Math.min(13, high * 0.62);
  if (size < 7 || room < 4 || !both) return;
  if (second && high >= 26 && room >= Math.max(first.length, second.length) * 7.2) {
    write(first, x0 + w / 2, y + high * 0.32, 12.5, ink, "center", true);
    write(second, x0 + w / 2, y + high * 0.7, 11, ink);
  } else if (room >= both.length * size * 0.58) write(both, x0 + w / 2, y + high / 2, size, ink, "center", true);
  else if (room >= narrow.length * 6.4) write(narrow, x0 + w / 2, y + high / 2, Math.min(10, size), ink, "center", true);
  else if (narrow === first && high >= 26 && room >= 8 && /^[A-Z]\d/.test(both)) {
    write(both[0], x0 + w / 2, y + high * 0.32, 10, ink, "center", true);
    write(first.slice(1), x0 + w / 2, y + high * 0.7, 10, ink);
  } else if (w >= narrow.length * 5.4) write(narrow, x0 + w / 2, y + high / 2, 9, ink, "center", true);
}

function drawLinks(focus) {
  for (const [from, to] of run.links) {
    const x0 = x(run.stop[from]), x1 = x(run.start[to]);
    if (x1 < LEFT - 8 || x0 > width) continue;
    const down = run.rank[to] > run.rank[from];
    const y0 = topOf(from) + (down ? heightOf(from) : 0), y1 = topOf(to) + (down ? 0 : heightOf(to));
    pen.globalAlpha = focus >= 0 && focus !== from && focus !== to ? 0.3 : 1;
    pen.strokeStyle = pen.fillStyle = paint("ink");
    line([[x0, y0], [x1, y1]]);
    const length = Math.hypot(x1 - x0, y1 - y0) || 1, ux = (x1 - x0) / length * 6, uy = (y1 - y0) / length * 6;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - ux - uy / 2, y1 - uy + ux / 2);
    pen.lineTo(x1 - ux + uy / 2, y1 - uy - ux / 2);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function drawCritical() {
  const points = run.critical.flatMap((i) => {
    const y = topOf(i) + heightOf(i) + 2;
    return [[x(run.start[i]), y], [x(run.stop[i]), y]];
  });
  pen.lineWidth = 3;
  pen.strokeStyle = paint("critical");
  line(points);
  pen.lineWidth = 1;
}

function ring(i, colour, dash) {
  frame(run.start[i], run.stop[i], topOf(i), heightOf(i), colour, dash);
}

const ringAround = ([rank, start, end], colour) => frame(start, end, top(rank), streamHeight(0), colour, [2, 2]);

function frame(start, stop, y, high, colour, dash) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2.5;
  pen.setLineDash(dash);
  pen.strokeRect(x(start) - 1, y - 2, Math.max(x(stop) - x(start), 1) + 2, high + 4);
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

function drawMemory() {
  if (!strip) return;
  const { most, target, ranks, fills, peak } = run.memory, unit = most ? strip * 0.8 / most : 0;
  ranks.forEach((levels, rank) => {
    const floor = floorOf(rank), edge = [];
    for (const [start, end, ...shares] of levels) {
      if (end < state.from || start > state.to || end === start) continue;
      const x0 = Math.max(x(start), LEFT - 8), x1 = Math.min(x(end), width);
      let y = floor;
      fills.forEach((fill, kind) => {
        const [stored, hidden] = [shares[2 * kind], shares[2 * kind + 1]], high = (stored + hidden) * unit;
        if (!high) return;
        pen.fillStyle = fill[state.dark];
        pen.fillRect(x0, y - high, x1 - x0 + 0.4, high);
        if (hidden && x1 - x0 > 2) hatch(x0, y - high, x1, y - stored * unit, 4, paint("ink"));
        y -= high;
      });
      edge.push([x0, y], [x1, y]);
    }
    pen.strokeStyle = paint("memory");
    line(edge);
    pen.strokeStyle = paint("grid");
    line([[LEFT, floor], [width - RIGHT, floor]]);
    if (target && target <= most) {
      pen.strokeStyle = paint("target");
      pen.setLineDash([5, 3]);
      line([[LEFT, floor - target * unit], [width - RIGHT, floor - target * unit]]);
      pen.setLineDash([]);
    }
  });
  if (!peak[0]) return;
  const px = x(peak[2]), py = floorOf(peak[1]) - peak[0] * unit, left = px > width - 150;
  pen.fillStyle = paint("alarm");
  pen.beginPath();
  pen.arc(px, py, 4, 0, 7);
  pen.fill();
  pen.strokeStyle = paint("paper");
  pen.lineWidth = 3;
  pen.font = "bold 12px Helvetica, Arial, sans-serif";
  pen.textAlign = left ? "right" : "left";
  pen.strokeText(`peak ${peak[0].toLocaleString("en")}`, px + (left ? -8 : 8), py - 9);
  write(`peak ${peak[0].toLocaleString("en")}`, px + (left ? -8 : 8), py - 9, 12, paint("ink"), left ? "right" : "left", true);
  pen.lineWidth = 1;
}

// What each rank sends in the whole run, by kind of call. These bars have no time, so they do not zoom.
function drawTraffic() {
  const { most, target, names, fills, inks, ranks } = run.traffic, unit = (width - LEFT - RIGHT) / most, high = barPitch * 0.7;
  if (!most) return;
  const up = `up to ${most.toLocaleString("en")}`;
  heading(barTop(0) - 14, `traffic: elements that each rank sends, all on one scale ${up}`, `traffic of each rank, ${up} elements`);
  const every = Math.max(1, Math.ceil(11 / barPitch));
  ranks.forEach((sent, rank) => {
    const y = barTop(rank), name = run.labels[rank];
    if (rank % every === 0) write(name, LEFT - 10, y + high / 2, Math.min(12, (LEFT - 10) / name.length / 0.56), paint("soft"), "right");
    let at = LEFT;
    sent.forEach((elements, kind) => {
      const words = `${names[kind]} ${elements.toLocaleString("en")}`, long = elements * unit;
      pen.fillStyle = fills[kind][state.dark];
      pen.fillRect(at, y, long, high);
      if (high >= 11 && words.length * 6 + 10 < long) write(words, at + long / 2, y + high / 2, 10, inks[kind][state.dark]);
      at += long;
    });
  });
  if (!target || target > most) return;
  pen.strokeStyle = paint("target");
  pen.setLineDash([5, 3]);
  line([[LEFT + target * unit, barTop(0) - 4], [LEFT + target * unit, barTop(run.ranks)]]);
  pen.setLineDash([]);
}

function drawCursor() {
  if (state.cursor >= whole) return;
  pen.strokeStyle = paint("alarm");
  pen.lineWidth = 2;
  line([[x(state.cursor), 0], [x(state.cursor), floorOf(run.ranks - 1)]]);
  pen.lineWidth = 1;
}
