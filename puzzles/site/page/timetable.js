// The timetable made by hand: its cells are dragged, tapped, or moved with the keyboard to a place in a rank's row.
// Python says which places are legal, and when each cell starts; here it is only shown.

import { button, h, tell } from "./dom.js";
import { dragging } from "./drag.js";
import * as store from "./store.js";

const NAMES = { F: "forward", B: "backward", I: "input half of backward", W: "weight half of backward" };
const parts = (cell) => /(\d+)([A-Z])(\d+)/.exec(cell).slice(1);
const named = (cell) => { const [stage, op, batch] = parts(cell); return `${cell}: ${NAMES[op]} of microbatch ${batch} in stage ${stage}`; };

export class Timetable {
  // `onwrite` gets the code; `code` returns the player's.
  constructor(place, python, puzzle, { onwrite, code }) {
    Object.assign(this, { place, python, puzzle, onwrite, code });
    const kept = store.draft(puzzle.slug);
    this.rows = kept?.length === puzzle.ranks ? kept : this.none();
    this.history = [];
    this.held = null; // { cell, refusals, rank, at }
    this.told = h("p", { class: "told", role: "status", "aria-live": "polite" });
    this.grid = h("div", { class: "grid", role: "group", "aria-label": "Timetable" });
    this.tray = h("div", { class: "tray", role: "group", "aria-label": "Cells that are not placed" });
    this.text = h("textarea", { rows: puzzle.ranks + 1, spellcheck: "false", "aria-label": "The timetable as text" });
    place.replaceChildren(
      h("div", { class: "bar", role: "toolbar", "aria-label": "Timetable" },
        button("Write the coroutine", () => this.write(), { class: "go", id: "write" }),
        button("Read my code", () => this.readCode(), { id: "readcode" }),
        button("Undo", () => this.undo(), { id: "undo" }), button("Clear", () => this.set(this.none()), { id: "clear" })),
      this.told, h("div", { class: "scrolls" }, this.grid), this.tray,
      h("details", {}, h("summary", {}, "As text"), this.text,
        button("Take this text", () => this.attempt(async () => this.set(await this.ask("read_timetable", this.text.value))), { id: "taketext" })));
    place.addEventListener("keydown", (event) => this.key(event));
    dragging(this);
    this.show();
  }

  none() { return Array.from({ length: this.puzzle.ranks }, () => []); }

  ask(name, ...given) { return this.python.call(name, [this.puzzle.slug, ...given]); }

  async attempt(what) {
    try {
      return await what();
    } catch (why) {
      this.say(why.message, true);
    }
  }

  say(words, wrong = false) {
    this.told.textContent = words;
    this.told.classList.toggle("wrong", wrong);
  }

  async set(rows, words) {
    this.history.push(this.rows);
    await this.change(rows, words);
  }

  async undo() {
    if (!this.history.length) return this.say("There is nothing to undo.");
    await this.change(this.history.pop());
  }

  async change(rows, words) {
    this.rows = rows;
    store.keepDraft(this.puzzle.slug, rows);
    await this.show(words);
  }

  async show(words) {
    const draft = await this.attempt(() => this.ask("draft", this.rows));
    if (!draft && !this.draft && this.rows.some((row) => row.length)) return this.change(this.none(), "The timetable that was kept is of another version of this puzzle.");
    if (!draft) return;
    this.draft = draft;
    const end = Math.max(12, ...draft.rows.flat().map((cell) => cell.start + cell.length)) + 4;
    this.unit = 30;
    this.grid.replaceChildren(...draft.rows.map((row, rank) => h("div", { class: "lane", "data-rank": rank },
      h("span", { class: "rank" }, `rank ${rank}`),
      h("div", { class: "slots", style: `width:${end * this.unit}px` }, row.map((cell) => this.chip(cell.cell, cell))))));
    const stages = Map.groupBy ? Map.groupBy(draft.missing, (cell) => parts(cell)[0]) : grouped(draft.missing);
    this.tray.replaceChildren(...[...stages].map(([stage, cells]) => h("div", { class: "stage" }, h("span", { class: "rank" }, `stage ${stage}`), cells.map((cell) => this.chip(cell)))));
    this.text.value = draft.text;
    this.place.dataset.missing = draft.missing.length;
    const left = draft.missing.length;
    this.say(words || (left ? `${left} of ${draft.wanted} cells are to be placed. Drag one to a rank's row; or press Enter on it, then arrows, then Enter; or E puts it last.` : "Complete. Write the coroutine, and it runs."));
  }

  chip(cell, at) {
    const [, op, batch] = parts(cell);
    const style = at ? `left:${at.start * this.unit}px;width:${at.length * this.unit - 2}px` : "";
    return h("button", { type: "button", class: `cell op-${op}`, style, "data-cell": cell, "aria-label": named(cell), title: named(cell) }, at ? `${op}${batch}` : cell);
  }

  find(cell) { return this.place.querySelector(`[data-cell="${cell}"]`); }
  others(rank) { return this.rows[rank].filter((cell) => cell !== this.held.cell); }

  // Takes a cell in hand; Python tells where it may go.
  async pick(cell) {
    const taken = this.held = { cell, rank: this.rows.findIndex((row) => row.includes(cell)), at: 0 };
    const refusals = await this.attempt(() => this.ask("refusals", this.rows, cell));
    if (this.held !== taken || !refusals) return;
    taken.refusals = refusals;
    const home = refusals.findIndex((row) => row.some((why) => !why));
    if (taken.rank < 0) taken.rank = Math.max(home, 0);
    taken.at = Math.max(refusals[taken.rank].lastIndexOf(""), 0);
    this.aim(taken.rank, taken.at);
  }

  aim(rank, at) {
    const held = this.held;
    if (!held?.refusals) return;
    Object.assign(held, { rank, at: Math.min(at, held.refusals[rank].length - 1) });
    const why = held.refusals[held.rank][held.at], row = this.others(rank);
    this.say(why || `${held.cell} on rank ${rank}, ${held.at ? `after ${row[held.at - 1]}` : row.length ? `before ${row[0]}` : "as the first"}.`, Boolean(why));
    this.mark();
  }

  // Shows where the cell in hand would go.
  mark() {
    for (const old of this.place.querySelectorAll(".aim, .held")) old.classList.remove("held"), old.classList.contains("aim") && old.remove();
    if (!this.held) return;
    this.find(this.held.cell)?.classList.add("held");
    const slots = this.grid.children[this.held.rank].querySelector(".slots"), before = this.others(this.held.rank)[this.held.at - 1];
    const cell = before && this.find(before);
    const legal = !this.held.refusals[this.held.rank][this.held.at];
    slots.append(h("span", { class: `aim ${legal ? "" : "illegal"}`, style: `left:${cell ? cell.offsetLeft + cell.offsetWidth : 0}px` }));
  }

  // Puts it there, if that is legal; else it stays in hand.
  async drop() {
    const held = this.held;
    if (!held?.refusals) return;
    const why = held.refusals[held.rank][held.at];
    if (why) return this.say(why, true);
    const row = this.others(held.rank), next = this.following(held.cell);
    this.held = null;
    const rows = this.rows.map((one) => one.filter((cell) => cell !== held.cell));
    rows[held.rank] = [...row.slice(0, held.at), held.cell, ...row.slice(held.at)];
    await this.set(rows);
    (this.find(next) || this.find(held.cell))?.focus();
  }

  // Lets go of it; what was said last stays.
  release() {
    this.held = null;
    this.mark();
  }

  cancel() {
    this.release();
    this.show();
  }

  // The cell to place after this one: the next microbatch, else the next cell that is missing.
  following(cell) {
    const [stage, op, batch] = parts(cell), missing = this.draft.missing.filter((one) => one !== cell);
    const next = `${stage}${op}${Number(batch) + 1}`;
    return missing.includes(next) ? next : missing.find((one) => one.startsWith(`${stage}${op}`)) || missing[0];
  }

  async takeAway(cell) {
    if (this.rows.some((row) => row.includes(cell))) await this.set(this.rows.map((row) => row.filter((one) => one !== cell)));
    this.find(cell)?.focus();
  }

  // The rank that has the cell's stage already, else the one of its number, counted in a circle, else the first that may have it.
  ownRank(cell) {
    const { refusals } = this.held, isFit = (rank) => !refusals[rank].at(-1), [stage] = parts(cell);
    const has = this.rows.findIndex((row) => row.some((one) => parts(one)[0] === stage && one !== cell));
    if (has >= 0) return has;
    const own = Number(stage) % this.rows.length, fit = refusals.findIndex((_, rank) => isFit(rank));
    return isFit(own) || fit < 0 ? own : fit;
  }

  async last(cell) {
    await this.pick(cell);
    if (!this.held?.refusals) return;
    this.aim(this.ownRank(cell), Infinity);
    await this.drop();
    this.release();
  }

  async key(event) {
    const cell = event.target.dataset?.cell;
    if (!cell || event.ctrlKey || event.metaKey) return;
    const held = this.held?.refusals && this.held;
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (held && move) {
      const rank = Math.min(Math.max(held.rank + move[0], 0), this.rows.length - 1);
      this.aim(rank, Math.max(held.at + move[1], 0));
    } else if (event.key === "Enter" || event.key === " ") held && held.cell === cell ? await this.drop() : await this.pick(cell);
    else if (event.key === "Escape") this.cancel();
    else if (event.key === "Delete" || event.key === "Backspace") await this.takeAway(cell);
    else if (event.key === "e" || event.key === "E") await this.last(cell);
    else return;
    event.preventDefault();
  }

  write() { return this.attempt(async () => this.onwrite(await this.ask("written", this.rows))); }

  readCode() {
    return this.attempt(async () => this.set(await this.ask("timetable_of_runs", await this.python.run(this.puzzle.slug, this.code())), "This is what your code computes."));
  }
}

function grouped(cells) {
  const groups = new Map();
  for (const cell of cells) groups.set(parts(cell)[0], [...(groups.get(parts(cell)[0]) || []), cell]);
  return groups;
}
