// The timetable made by hand: its cells are dragged, tapped, or moved with the keyboard to a place in a rank's row.
// Python says which places are legal, and when each cell starts; here it is only shown.

import { button, h } from "./dom.js";
import { dragging } from "./drag.js";
import { parts, rowsOf, trayOf } from "./grid.js";
import { shareLink } from "./share.js";
import { Keeping } from "./keeping.js";
import { tableRows, tableText, Writing } from "./store.js";

export class Timetable {
  // `onwrite` gets the code, `onshow` what is known of the draft; `code` returns the player's, `colour` that of the picture.
  constructor(place, python, puzzle, { onwrite, onshow, code, colour }) {
    Object.assign(this, { place, python, puzzle, onwrite, onshow, code, colour });
    const writing = new Writing("drafts", puzzle.slug, tableText(this.none())), kept = tableRows(writing.text());
    this.rows = kept.length === puzzle.rows ? kept : this.none();
    this.history = [];
    this.undone = [];
    this.aims = 0; // places that have been aimed at, of which only the last is computed
    this.held = null; // { cell, refusals, rank, at }
    this.told = h("p", { class: "told", role: "status", "aria-live": "polite" });
    this.grid = h("div", { class: "grid", role: "group", "aria-label": "Timetable" });
    this.axis = h("div", {});
    this.tray = h("div", { class: "tray", role: "group", "aria-label": "Cells that are not placed" });
    this.text = h("textarea", { rows: puzzle.rows + 1, spellcheck: "false", "aria-label": "The timetable as text" });
    const newer = h("p", { class: "banner newer", role: "alert", hidden: true });
    const tools = h("div", { class: "bar", role: "toolbar", "aria-label": "Timetable" },
      button("Write the coroutine", () => this.write(), { class: "go", id: "write" }),
      button("Read my code", () => this.readCode(), { id: "readcode" }),
      button("Undo", () => this.undo(), { id: "undo" }), button("Redo", () => this.redo(), { id: "redo" }),
      button("Clear", () => this.replace(this.none()), { id: "clear" }), button("Link", () => shareLink(this.python, this.puzzle.slug, "timetable", this.draft.text), { id: "handlink" }));
    this.keeping = new Keeping(writing, { place: newer, tools, shown: () => tableText(this.rows), replace: (text) => this.take(text) });
    place.replaceChildren(tools, newer, this.told, h("div", { class: "scrolls", tabindex: "0" }, this.axis, this.grid), this.tray,
      h("details", {}, h("summary", {}, "As text"), this.text,
        button("Take this text", () => this.take(this.text.value), { id: "taketext" })));
    place.addEventListener("keydown", (event) => this.key(event));
    dragging(this);
    this.show();
  }

  none() { return Array.from({ length: this.puzzle.rows }, () => []); }

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
    this.undone = [];
    await this.change(rows, words);
  }

  async undo() {
    if (!this.history.length) return this.say("There is nothing to undo.");
    this.undone.push(this.rows);
    await this.change(this.history.pop());
  }

  async redo() {
    if (!this.undone.length) return this.say("There is nothing to redo.");
    this.history.push(this.rows);
    await this.change(this.undone.pop());
  }

  async change(rows, words) {
    this.rows = rows;
    this.keeping.keep(tableText(rows));
    await this.show(words);
  }

  // Another timetable in the place of this one, which becomes an earlier version.
  replace(rows, words) {
    this.keeping.remember();
    return this.set(rows, words);
  }

  // A timetable in text.
  take(text) {
    return this.attempt(async () => this.replace(await this.ask("read_timetable", text)));
  }

  // A timetable in text that is shown, and kept with the first move.
  look(text, words) {
    return this.attempt(async () => {
      const rows = await this.ask("read_timetable", text);
      this.history.push(this.rows);
      this.rows = rows;
      await this.show(words);
    });
  }

  async show(words) {
    const draft = await this.attempt(() => this.ask("draft", this.rows, this.colour()));
    if (!draft && !this.draft && this.rows.some((row) => row.length)) return this.change(this.none(), "The timetable that was kept is of another version of this puzzle.");
    if (!draft) return;
    this.draft = draft;
    const { axis, lanes } = rowsOf(draft, this.place.clientWidth - 28, { choose: (cell) => this.last(cell, false), look: (ghost) => this.price(ghost), leave: () => this.held || this.say(this.words) });
    this.axis.replaceChildren(axis);
    this.grid.replaceChildren(...lanes);
    this.tray.replaceChildren(...trayOf(draft.missing));
    this.text.value = draft.text;
    const left = this.place.dataset.missing = draft.missing.length;
    this.words = words || (left ? `${left} of ${draft.wanted} cells are to be placed. Drag one to a rank's row, or click a pale one, which is ready; or press Enter on it, then arrows, then Enter; or E puts it last.` : "Complete. Write the coroutine, and it runs.");
    this.say(this.words);
    this.onshow(draft);
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
    const where = `${held.cell} on rank ${rank}, ${held.at ? `after ${row[held.at - 1]}` : row.length ? `before ${row[0]}` : "as the first"}.`;
    this.say(why || where, Boolean(why));
    this.mark();
    if (!why) this.weigh(where);
  }

  // The rows with the cell in hand at its place.
  moved() {
    const { cell, rank, at } = this.held, row = this.others(rank);
    const rows = this.rows.map((one) => one.filter((other) => other !== cell));
    rows[rank] = [...row.slice(0, at), cell, ...row.slice(at)];
    return rows;
  }

  // Says what the move costs, and shows the figures that it would give.
  async weigh(where) {
    const aim = ++this.aims, before = this.draft;
    const draft = await this.ask("draft", this.moved(), this.colour()).catch(() => null);
    if (aim !== this.aims || !this.held || !draft) return;
    this.say(`${where} ${costOf(before, draft)}`);
    this.onshow(draft);
  }

  // Says what a move that is ready costs, as long as it is pointed at, or has the keyboard's focus.
  async price(ghost) {
    const cell = ghost.dataset.ghost, rank = Number(ghost.closest(".lane").dataset.rank), before = this.draft;
    const draft = await this.ask("draft", this.rows.map((row, one) => (one === rank ? [...row, cell] : row))).catch(() => null);
    if (draft && !this.held && ghost.matches(":hover, :focus-visible")) this.say(`${cell} on rank ${rank}. ${costOf(before, draft)}`);
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
  async drop(goesOn = true) {
    const held = this.held;
    if (!held?.refusals) return;
    const why = held.refusals[held.rank][held.at];
    if (why) return this.say(why, true);
    const rows = this.moved(), next = this.following(held.cell);
    this.held = null;
    await this.set(rows);
    if (goesOn) (this.find(next) || this.find(held.cell))?.focus();
    else (this.place.querySelector("[data-ghost]") || this.find(held.cell))?.focus();
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

  // Puts a cell last on its rank. Then the focus goes on to the next one in the tray, or to what is ready.
  async last(cell, goesOn = true) {
    this.release();
    await this.pick(cell);
    if (!this.held?.refusals) return;
    this.aim(this.ownRank(cell), Infinity);
    await this.drop(goesOn);
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
    return this.attempt(async () => this.replace(await this.ask("timetable_of_runs", await this.python.run(this.puzzle.slug, this.code())), "This is what your code computes."));
  }
}

// What a move does to the makespan, and to each figure.
function costOf(before, after) {
  if (after.refusal) return after.refusal;
  const change = (name, old, now) => (old === now ? `${name} ${now.toLocaleString("en")} as before` : `${name} ${old.toLocaleString("en")} → ${now.toLocaleString("en")}`);
  const figures = (after.measures ?? []).filter((one) => one.figure !== "timesteps").map((one, i) => change(one.words, before.measures?.filter((old) => old.figure !== "timesteps")[i]?.value ?? 0, one.value));
  return `${[change("Makespan", before.makespan ?? 0, after.makespan), ...figures].join("; ")}.`;
}
