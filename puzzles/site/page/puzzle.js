// One puzzle: the statement, hints and calls beside the editor, the verdict below it, and the picture of the run.

import { button, h, tell } from "./dom.js";
import { openEditor } from "./editor.js";
import { Keeping } from "./keeping.js";
import { firstOpen } from "./map.js";
import { Picture } from "./picture.js";
import { Crashed, Stopped } from "./python.js";
import * as store from "./store.js";
import { Timetable } from "./timetable.js";
import { showCrashed, showStopped, showUnrun, showVerdict, starsText } from "./verdict.js";

export class PuzzlePage {
  // `shared` is the code, or the trace, of a link; it is shown and not changed.
  constructor(main, catalog, puzzle, python, { code, trace } = {}) {
    Object.assign(this, { main, catalog, puzzle, python, trace, shared: code != null || trace != null });
    this.code = code ?? store.code(puzzle.slug) ?? puzzle.starter;
    this.build();
    if (code == null) this.run(); else showUnrun(this.verdict);
  }

  build() {
    const { puzzle } = this;
    this.verdict = h("div", { class: "verdict", role: "status", "aria-live": "polite" });
    this.runs = button("Run", () => this.run(), { title: "Ctrl+Enter", class: "run" });
    this.stops = button("Stop", () => this.python.stop(), { disabled: true, class: "stop-run" });
    this.newer = h("p", { class: "banner", role: "alert", id: "newer", hidden: true });
    this.editorPlace = h("div", { class: "editor" });
    this.handPlace = h("section", { class: "byhand", "aria-label": "Timetable by hand", hidden: true });
    this.picturePlace = h("section", { class: "picture", "aria-label": "Picture of the run" });
    this.tools = h("div", { class: "bar tools", role: "toolbar", "aria-label": "Code" }, this.runs, this.stops);
    this.main.replaceChildren(
      h("div", { class: "heading" }, h("h1", {}, puzzle.heading), h("span", { class: "stars", id: "stars" }), h("p", {}, puzzle.limits),
        puzzle.place ? h("p", { class: "place" }, `${puzzle.place}.`) : ""),
      this.shared ? this.banner() : this.newer,
      h("div", { class: "work" },
        h("div", { class: "code" }, this.trace ? "" : [this.editorPlace, this.tools], this.verdict),
        sheet(puzzle)),
      this.handPlace,
      this.picturePlace);
    this.picture = new Picture(this.picturePlace);
    this.showStars();
    if (this.trace) return;
    this.editor = openEditor(this.editorPlace, {
      text: this.code, readOnly: this.shared, label: `Your code for ${puzzle.title}`,
      onchange: (text) => this.keeping.keep(text), onpause: () => this.run(), onrun: () => this.run(),
    });
    if (this.shared) return;
    this.tools.append(button("Start over", () => this.startOver()));
    this.keeping = new Keeping(puzzle, { place: this.newer, tools: this.tools, editor: () => this.editor });
    if (puzzle.no_timetable) this.tools.after(h("p", { class: "aside" }, puzzle.no_timetable));
    if (puzzle.timetable) this.tools.append(button("By hand", () => this.byHand(), { id: "byhand", "aria-expanded": "false" }));
  }

  // Opens or closes the timetable, which is made when it is first opened.
  byHand() {
    this.handPlace.hidden = !this.handPlace.hidden;
    this.main.querySelector("#byhand").setAttribute("aria-expanded", !this.handPlace.hidden);
    this.table ??= new Timetable(this.handPlace, this.python, this.puzzle, { code: () => this.text(), onwrite: (text) => this.take(text) });
  }

  // Code that the timetable has written.
  take(text) {
    const { slug, starter } = this.puzzle, own = store.code(slug);
    const isOwn = own != null && own !== starter && !own.includes("Plays the timetable above.");
    if (isOwn && !confirm("Replace your code by that of the timetable?")) return;
    this.keeping.remember();
    this.editor.replace(text);
    this.run();
  }

  banner() {
    const what = this.trace ? "A run that somebody shared. It was judged here, in your browser." : "Code that somebody shared. It runs in your browser when you press Run.";
    const mine = this.trace ? "Play this puzzle" : "Make it mine";
    return h("p", { class: "banner" }, what, " ", button(mine, () => this.adopt(), { class: "go" }));
  }

  adopt() {
    const { slug } = this.puzzle, own = store.code(slug);
    if (!this.trace) {
      if (own != null && own !== this.puzzle.starter && own !== this.code &&
        !confirm(`This replaces your own code for ${slug}. It stays among the earlier versions. Go on?`)) return;
      store.keepVersion(slug, own);
      store.keepCode(slug, this.code);
    }
    location.hash = slug;
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

  async runOnce() {
    const { python, puzzle } = this;
    try {
      const verdict = this.trace
        ? await python.call("verify", [puzzle.slug, this.trace])
        : await python.call("judge", [puzzle.slug, await python.run(puzzle.slug, this.editor.text())]);
      if (this.closed) return;
      this.show(verdict);
      this.main.dataset.verdicts = Number(this.main.dataset.verdicts || 0) + 1;
      const view = await python.call("view", [this.picture.colour]);
      if (this.closed || this.again) return;
      this.picture.show(view);
      if (verdict.status === "passed") this.verdict.querySelector(".story").textContent = (await python.call("story")).join(" ");
    } catch (why) {
      if (this.closed) return;
      if (why instanceof Stopped) showStopped(this.verdict, why.message);
      else if (why instanceof Crashed) showCrashed(this.verdict, why.message);
      else tell(`This page has a mistake: ${why.message}`);
    }
  }

  show(verdict) {
    const { puzzle } = this, next = firstOpen(this.catalog, puzzle.slug);
    if (!this.shared) store.keepStars(puzzle.slug, verdict.stars);
    this.showStars();
    this.onstars?.();
    showVerdict(this.verdict, verdict, {
      onhint: () => this.hint(),
      onnext: this.shared || next.slug === puzzle.slug ? null : { title: next.title, go: () => { location.hash = next.slug; } },
    });
    this.editor?.mark(verdict.line, verdict.message);
  }

  hint() {
    const hints = this.main.querySelector(".hints");
    hints.open = true;
    hints.querySelector("button:not([hidden])")?.click();
    hints.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.closed = true;
    this.keeping?.close();
    this.editor?.close();
    this.picture.close();
    this.python.renew();
  }
}

// What there is to read: the statement, what is new, the calls, the hints one by one, the idea behind it.
export function sheet(puzzle) {
  const wide = !matchMedia("(max-width: 900px)").matches; // on a phone the calls are to be looked up
  return h("aside", { class: "sheet", "aria-label": "The puzzle" },
    h("div", { html: puzzle.statement }),
    puzzle.setting.length ? settingTable(puzzle.setting) : "",
    puzzle.picture ? figure(puzzle) : "",
    ...puzzle.sections.map((section) => h("details", { open: wide, class: "calls" }, h("summary", {}, section.title),
      h("dl", {}, section.lines.flatMap(([line, meaning]) => [h("dt", {}, h("code", {}, line)), meaning ? h("dd", { html: meaning }) : ""])))),
    hintsOf(puzzle),
    ...puzzle.background.map(([title, html]) => h("details", {}, h("summary", {}, title), h("div", { html }))),
    h("details", {}, h("summary", {}, "Sources"), h("ul", {}, puzzle.sources.map((html) => h("li", { html })))));
}

function settingTable(rows) {
  const [head, ...rest] = [["Here", "", "in the classics"], ...rows];
  return h("div", { class: "scrolls" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "what"), h("th", {}, "here"), h("th", {}, head[2]))),
    h("tbody", {}, rest.map((row) => h("tr", {}, row.map((cell) => h("td", { html: cell })))))));
}

function figure(puzzle) {
  const source = URL.createObjectURL(new Blob([puzzle.picture], { type: "image/svg+xml" }));
  const image = h("img", { src: source, alt: `Sketch for ${puzzle.title}`, onload: () => URL.revokeObjectURL(source) });
  return h("figure", { class: "sketch" }, image);
}

function hintsOf(puzzle) {
  const place = h("div", {}), count = puzzle.hints.length;
  let shown = 0;
  const more = button("", () => show(shown + 1));
  function show(upTo) {
    for (; shown < upTo; shown++) place.append(h("div", { class: "hint" }, h("b", {}, `Hint ${shown + 1}`), h("div", { html: puzzle.hints[shown] })));
    if (upTo) store.keepHints(puzzle.slug, upTo);
    more.textContent = shown ? `Hint ${shown + 1} of ${count}` : `First of ${count} hints`;
    more.hidden = shown === count;
  }
  show(store.hints(puzzle.slug));
  return h("details", { class: "hints" }, h("summary", {}, "Hints"), place, more);
}

// A puzzle of a track that needs an installation: all there is to read.
export function showElsewhere(main, puzzle) {
  main.replaceChildren(
    h("div", { class: "heading" }, h("h1", {}, puzzle.heading), h("p", {}, puzzle.limits),
      puzzle.place ? h("p", { class: "place" }, `${puzzle.place}.`) : ""),
    h("p", { class: "banner" }, "This puzzle computes with numpy, so it is played in an installation, not in the browser: ",
      "install the game, then type ", h("code", {}, `puzzles start ${puzzle.slug}`), "."),
    h("div", { class: "read" }, sheet(puzzle),
      h("section", { class: "code" }, h("h2", {}, "Starter"), h("pre", { class: "starter" }, h("code", {}, puzzle.starter)))));
}
