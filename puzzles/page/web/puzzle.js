// One puzzle: the statement, the code or the timetable, and at the right its verdict with the picture of the run. A phone
// shows one of the three.

import { button, h, painted, seen, tell } from "./dom.js";
import { Keeping } from "./keeping.js";
import { Output } from "./output.js";
import { firstOpen } from "./path.js";
import { Picture } from "./picture.js";
import { Crashed, Stopped } from "./python.js";
import { sheet } from "./sheet.js";
import * as store from "./store.js";
import { isDark } from "./theme.js";
import { Timetable } from "./timetable.js";
import { showBroken, showCompared, showCrashed, showHand, showJudging, showLoading, showStopped, showUnjudged, showUnrun, showVerdict, starsText } from "./verdict.js";

export class PuzzlePage {
  // The code, or the trace, of a link is shown and not changed; its timetable is kept with the first move.
  constructor(main, catalog, puzzle, python, { code, trace, timetable } = {}) {
    Object.assign(this, { main, catalog, puzzle, python, trace, shared: code != null || trace != null });
    this.own = new store.Writing("codes", puzzle.slug, puzzle.starter);
    this.code = code ?? this.own.text();
    this.build();
    if (code == null) this.run(); else showUnrun(this.verdict);
    if (timetable != null && puzzle.timetable) {
      this.byHand(true);
      this.table.look(timetable, "A timetable that somebody shared. It is kept once you change it; Undo goes back to yours.");
    }
    this.loading();
  }

  build() {
    const { puzzle } = this;
    this.main.classList.add("play");
    this.verdict = h("div", { class: "verdict", role: "status", "aria-live": "polite" });
    this.more = h("div", { class: "more" });
    this.runs = button("Run", () => this.runFresh(), { title: "Ctrl+Enter", class: "run" });
    this.stops = button("Stop", () => (this.isJudging ? this.python.endJudge() : this.python.stop()), { disabled: true, class: "stop-run" });
    this.newer = h("p", { class: "banner newer", role: "alert", hidden: true });
    this.editorPlace = h("div", { class: "editor" });
    this.keys = h("p", { class: "keys", id: "keys" }, "Tab indents. To leave the editor, press Escape, then Tab.");
    this.handPlace = h("section", { class: "byhand", "aria-label": "Timetable by hand", hidden: true });
    this.picturePlace = h("section", { class: "picture", "aria-label": "Picture of the run" });
    this.output = new Output();
    this.tools = h("div", { class: "bar tools", role: "toolbar", "aria-label": "Code" }, this.runs, this.stops);
    this.work = h("div", { class: "work" }, sheet(puzzle, this.catalog),
      this.trace ? "" : h("section", { class: "code", "aria-label": "Code" }, this.editorPlace, this.keys, this.tools, this.output.place, this.handPlace),
      h("section", { class: "result", "aria-label": "Result", tabindex: "0" }, this.verdict, this.picturePlace, this.more));
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "What is shown" },
      (this.trace ? ["Statement", "Picture"] : ["Statement", "Code", "Picture"]).map((name) => button(name, () => this.tab(name), { "data-tab": name })));
    this.main.replaceChildren(
      h("div", { class: "heading" }, h("h1", {}, puzzle.heading), h("span", { class: "stars", id: "stars" }), h("p", {}, puzzle.limits)),
      this.shared ? this.banner() : this.newer, this.tabs, this.work);
    this.tab(this.trace ? "Picture" : this.shared ? "Code" : "Statement");
    this.picture = new Picture(this.picturePlace, this.trace ? "" : puzzle.par, puzzle.drawn ? undefined : "A class has no picture. Its figures say what each device sends and holds.");
    this.picture.show(null);
    this.showStars();
    if (this.trace) return;
    const replace = (text) => { this.code = text; this.keeping.keep(text); };
    this.editor = { text: () => this.code, replace, mark() {}, focus() {}, close() {} }; // until the editor is there
    this.marked = [0, ""];
    this.edit().catch(() => tell("The editor could not be loaded. Check the connection, then reload the page."));
    if (this.shared) return;
    this.tools.append(button("Start over", () => this.startOver()));
    this.keeping = new Keeping(this.own, { place: this.newer, tools: this.tools, shown: () => this.text(), replace: (text) => this.editor.replace(text) });
    if (puzzle.no_timetable) this.tools.after(h("p", { class: "aside" }, puzzle.no_timetable));
    if (puzzle.timetable) this.tools.append(button("By hand", () => this.byHand(), { id: "byhand", "aria-pressed": "false" }));
  }

  // The editor is a large script, for which the statement does not wait.
  async edit() {
    const { puzzle } = this;
    await painted();
    await seen(this.editorPlace); // on a phone it is behind a tab
    const { openEditor } = await import("./editor.js");
    await painted();
    if (this.closed) return;
    this.editor = openEditor(this.editorPlace, {
      text: this.code, readOnly: this.shared, label: `Your code for ${puzzle.title}`,
      help: { members: this.catalog.model, calls: puzzle.sections.flatMap((section) => section.lines) },
      onchange: (text) => this.keeping.keep(text), onpause: () => this.run(), onrun: () => this.runFresh(),
    });
    this.editor.mark(...this.marked);
  }

  // Of statement, code and picture what a phone shows.
  tab(name) {
    this.work.dataset.tab = name;
    for (const one of this.tabs.children) one.setAttribute("aria-pressed", one.dataset.tab === name);
  }

  // The timetable takes the place of the code, or the code that of the timetable.
  byHand(isHand = this.handPlace.hidden) {
    this.handPlace.hidden = !isHand;
    this.editorPlace.hidden = isHand;
    this.work.classList.toggle("hand", isHand);
    this.main.querySelector("#byhand").setAttribute("aria-pressed", isHand);
    if (!isHand) return this.run();
    this.tab("Code");
    this.table ??= new Timetable(this.handPlace, this.python, this.puzzle, {
      code: () => this.text(), colour: () => this.picture.chosen(), onwrite: (text) => this.take(text),
      onshow: (draft) => { if (!this.handPlace.hidden && !this.closed) this.showDraft(draft); },
    });
    if (this.table.draft) this.showDraft(this.table.draft);
  }

  // The figures and the picture of a timetable, in the place of those of the code.
  showDraft(draft) {
    showHand(this.verdict, this.more, draft);
    this.picture.show(draft.view);
  }

  // Code that the timetable has written.
  take(text) {
    const own = this.own.text(), isOwn = own !== this.own.blank && !own.includes("Plays the timetable above.");
    if (isOwn && !confirm("Replace your code by that of the timetable?")) return;
    this.keeping.remember();
    this.editor.replace(text);
    this.byHand(false);
  }

  banner() {
    const what = this.trace ? "A run that somebody shared. It was judged here, in your browser." : "Code that somebody shared. It runs in your browser when you press Run.";
    const mine = this.trace ? "Play this puzzle" : "Make it mine";
    return h("p", { class: "banner" }, what, " ", button(mine, () => this.adopt(), { class: "go" }));
  }

  adopt() {
    const { slug } = this.puzzle, own = this.own.text();
    if (!this.trace) {
      if (own !== this.own.blank && own !== this.code &&
        !confirm(`This replaces your own code for ${slug}. It stays among the earlier versions. Go on?`)) return;
      this.own.keepVersion(own);
      this.own.keep(this.code);
    }
    location.hash = slug;
  }

  // Shows how much of Python has come, where there is no verdict yet, or why it will not come.
  loading() {
    if (this.python.is === "broken") showBroken(this.verdict, this.python.why, this.python.advice);
    if (this.python.is === "loading") showLoading(this.verdict, ...this.python.progress);
  }

  text() {
    return this.editor ? this.editor.text() : this.code;
  }

  startOver() {
    if (this.editor.text() !== this.puzzle.starter) {
      this.keeping.remember();
      this.editor.replace(this.puzzle.starter);
      tell("This is the starter. Your code is under 'Earlier versions'.");
    }
    this.editor.focus();
  }

  showStars() {
    this.main.querySelector("#stars").textContent = starsText(store.stars(this.puzzle.slug));
  }

  // Runs the code in a Python in which nothing has run yet.
  runFresh() {
    if (!this.running) this.python.refresh();
    return this.run();
  }

  // Runs the code as it is now. While it runs, changes wait for its end; then only the last counts.
  async run() {
    if (this.running) { this.again = true; return; }
    this.running = true;
    this.stops.disabled = false;
    this.main.dataset.running = "true";
    do {
      this.again = false;
      await this.runOnce();
    } while (this.again && !this.closed);
    this.running = false;
    this.stops.disabled = true;
    delete this.main.dataset.running;
  }

  // The record of the runs.
  async record() {
    this.output.begin();
    try {
      return await this.python.run(this.puzzle.slug, this.text(), (going) => this.output.hear(going));
    } finally {
      this.output.end();
    }
  }

  // The verdict on a record or a trace; where it takes long, the page says so.
  async judged(how, what) {
    this.isJudging = true;
    const slow = setTimeout(() => { if (!this.closed && this.handPlace.hidden) showJudging(this.verdict); }, 500);
    try {
      return await this.python.call(how, [this.puzzle.slug, what]);
    } catch (why) {
      throw why instanceof Stopped ? Object.assign(why, { isOfJudge: true }) : why;
    } finally {
      clearTimeout(slow);
      this.isJudging = false;
    }
  }

  async runOnce() {
    const { python, puzzle } = this;
    try {
      const verdict = this.trace
        ? await this.judged("verify", this.trace)
        : await this.judged("judge", await this.record());
      if (this.closed || !this.handPlace.hidden) return;
      this.show(verdict);
      this.main.dataset.verdicts = Number(this.main.dataset.verdicts || 0) + 1;
      const view = await python.call("view", [this.picture.colour]);
      if (this.closed || this.again || !this.handPlace.hidden) return;
      this.picture.show(view ?? await python.call("picture", [this.picture.colour, isDark()]));
      if (verdict.status === "passed") this.more.querySelector(".story").textContent = (await python.call("story")).join(" ");
    } catch (why) {
      if (this.closed) return;
      this.more.replaceChildren();
      if (why instanceof Stopped && why.isOfJudge) return showUnjudged(this.verdict, why.message);
      if (why instanceof Stopped) showStopped(this.verdict, why.message, this.output.line);
      else if (why instanceof Crashed) showCrashed(this.verdict, why.message, this.output.line);
      else return tell(`This page has a mistake: ${why.message}`);
      this.mark(this.output.line, "The run was here when it ended.");
    }
  }

  show(verdict) {
    const { puzzle } = this;
    if (!this.shared) store.keepStars(puzzle.slug, verdict.stars);
    const next = firstOpen(this.catalog, puzzle.slug);
    this.showStars();
    this.onstars?.();
    showVerdict(this.verdict, this.more, verdict, {
      onhint: () => this.hint(),
      oncompare: this.shared || !this.catalog.compared.includes(puzzle.slug) ? null : () => this.compare(),
      onnext: this.shared || next.slug === puzzle.slug ? null : { title: next.title, go: () => { location.hash = next.slug; } },
    });
    this.work.classList.remove("compare");
    this.mark(verdict.line, verdict.message);
  }

  mark(...marked) {
    this.marked = marked;
    this.editor?.mark(...marked);
  }

  // The reference beside the code that has passed.
  async compare() {
    const { python, puzzle, picture } = this, mine = this.text();
    try {
      const answer = await fetch("references.json");
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const reference = (await answer.json())[puzzle.slug], record = puzzle.track === "schedule" ? await python.run(puzzle.slug, reference) : null;
      const compared = await python.call("compare", [mine, reference, record, picture.colour, isDark()]);
      if (this.closed) return;
      picture.close();
      this.tab("Picture");
      this.work.classList.add("compare");
      showCompared(this.picturePlace, compared, () => this.run());
    } catch (why) {
      tell(`The reference could not be shown: ${why.message}.`);
    }
  }

  hint() {
    const hints = this.main.querySelector(".hints");
    this.tab("Statement");
    hints.open = true;
    hints.querySelector("button:not([hidden])")?.click();
    hints.scrollIntoView({ block: "nearest" });
  }

  // Whether this tab has something that is not stored, since another one has stored something newer.
  isUnsaved() {
    return [this.keeping, this.table?.keeping].some((keeping) => keeping && keeping.newer() !== undefined);
  }

  // Another tab has stored something.
  look() {
    this.keeping?.look();
    this.table?.keeping.look();
  }

  close() {
    this.closed = true;
    this.keeping?.close();
    this.table?.keeping.close();
    this.editor?.close();
    this.picture.close();
    this.main.classList.remove("play");
  }
}
