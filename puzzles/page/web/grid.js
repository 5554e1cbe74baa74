// The rows of a timetable: an axis of time, the cells at their times, and ghosts of the moves that are ready.

import { h } from "./dom.js";

const NAMES = { F: "forward", B: "backward", I: "input half of backward", W: "weight half of backward" };
const LABEL = 62, LEAST = 11; // pixels: before a row, and of a step
export const parts = (cell) => /(\d+)([A-Z])(\d+)/.exec(cell).slice(1);
const named = (cell) => { const [stage, op, batch] = parts(cell); return `${cell}: ${NAMES[op]} of microbatch ${batch} in stage ${stage}`; };

// Which stages of its rank a cell's stage follows: 0 for the first.
const chunkOf = (cell, row) => [...new Set(row.map((one) => parts(one.cell)[0]))].sort((a, b) => a - b).indexOf(parts(cell)[0]);

export function chip(cell, { style = "", row = [], words = cell } = {}) {
  return h("button", { type: "button", class: `cell op-${parts(cell)[1]}`, style, "data-cell": cell, "data-chunk": Math.max(chunkOf(cell, row), 0), "aria-label": words === cell ? named(cell) : `${words}, ${named(cell)}`, title: named(cell) }, words);
}

// The rows of a draft, as wide as `width` where a step keeps its least size. `ghost` has what a move that is ready does when
// it is chosen, looked at and left.
export function rowsOf(draft, width, ghost) {
  const cells = [...draft.rows.flat(), ...draft.ready];
  const end = Math.max(12, ...cells.map((cell) => cell.start + cell.length)) + 1;
  const unit = Math.max(LEAST, Math.floor((width - LABEL - 4) / end));
  const place = (cell) => `left:${cell.start * unit}px;width:${cell.length * unit - 1}px`;
  const every = [1, 2, 5, 10, 20, 50].find((steps) => steps * unit >= 30) ?? 100;
  const axis = h("div", { class: "lane axis", "aria-hidden": "true" }, h("span", { class: "rank" }, "step"), h("div", { class: "slots", style: `width:${end * unit}px` },
    Array.from({ length: Math.ceil(end / every) }, (_, i) => h("span", { style: `left:${i * every * unit}px` }, String(i * every)))));
  const lanes = draft.rows.map((row, rank) => {
    const ready = draft.ready.filter((cell) => cell.rank === rank), all = [...row, ...ready];
    const many = new Set(all.map((cell) => parts(cell.cell)[0])).size > 1;
    const label = (cell) => { const [stage, op, batch] = parts(cell.cell); return many && cell.length * unit > 34 ? `${stage}${op}${batch}` : op + batch; };
    const ghosts = ready.map((cell, i) => h("button", {
      type: "button", class: `ghost op-${parts(cell.cell)[1]}`, style: `left:${(cell.start + 0.25 * i) * unit}px;width:${cell.length * unit - 1}px;z-index:${9 - i}`,
      "data-ghost": cell.cell, "data-chunk": chunkOf(cell.cell, all), "aria-label": `${label(cell)}, ready: place ${named(cell.cell)}, at step ${cell.start}`, title: `${cell.cell} could start at step ${cell.start}; click to place it`,
      onclick: () => ghost.choose(cell.cell), onpointerenter: (event) => ghost.look(event.target), onfocus: (event) => ghost.look(event.target), onpointerleave: ghost.leave, onblur: ghost.leave }, label(cell)));
    return h("div", { class: "lane", "data-rank": rank }, h("span", { class: "rank" }, `rank ${rank}`),
      h("div", { class: "slots", style: `width:${end * unit}px;--step:${unit}px` }, row.map((cell) => chip(cell.cell, { style: place(cell), row: all, words: label(cell) })), ghosts));
  });
  return { axis, lanes };
}

// The cells that are not placed, stage by stage.
export function trayOf(missing) {
  const stages = new Map();
  for (const cell of missing) stages.set(parts(cell)[0], [...(stages.get(parts(cell)[0]) ?? []), cell]);
  return [...stages].map(([stage, cells]) => h("div", { class: "stage" }, h("span", { class: "rank" }, `stage ${stage}`), cells.map((cell) => chip(cell))));
}
