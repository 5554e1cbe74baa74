// Keeps a puzzle's code or timetable while it is written: each change, earlier versions, and what to do when another tab has
// kept a newer one.

import { button, h, tell } from "./dom.js";
import * as store from "./store.js";

export class Keeping {
  // `place` gets the question which of two versions to take, `tools` the list of earlier ones. `shown` returns the text
  // that this tab shows, and `replace` shows another one.
  constructor(writing, { place, tools, shown, replace }) {
    Object.assign(this, { writing, place, shown, replace });
    this.base = writing.text(); // what this tab has read or written last
    this.isFirst = true;
    this.list = h("select", { class: "versions", "aria-label": "Earlier versions", onchange: () => this.restore() });
    tools.append(this.list);
    this.showVersions();
  }

  // A change by the player.
  keep(text) {
    if (this.newer() !== undefined) return this.ask();
    if (text === this.base) return;
    this.writing.keepVersion(this.base, !this.isFirst);
    this.isFirst = false;
    this.write(text);
  }

  write(text) {
    this.writing.keep(text);
    this.base = text;
    this.place.hidden = true;
    this.showVersions();
    if (!store.isKept()) tell("This browser has no room for your work, or keeps nothing. Save everything in a file before you close the page.");
  }

  // The text before something else takes its place.
  remember() {
    this.writing.keepVersion(this.shown());
    this.showVersions();
  }

  // What another tab has kept since; undefined if there is nothing.
  newer() {
    const now = this.writing.text();
    return now === this.base || now === this.shown() ? undefined : now;
  }

  // Looks whether another tab has kept something.
  look() {
    if (this.newer() !== undefined) this.ask(); else this.place.hidden = true;
  }

  ask() {
    if (!this.place.hidden) return;
    this.place.replaceChildren(
      "Another tab has kept a newer version. This one is not saved until you choose. ",
      button("Show the newer one", () => this.takeNewer(), { class: "go takenewer" }), " ",
      button("Keep this one", () => this.keepThis(), { class: "keepthis" }));
    this.place.hidden = false;
  }

  takeNewer() {
    const text = this.newer();
    this.remember();
    this.base = this.writing.text();
    this.place.hidden = true;
    if (text !== undefined) this.replace(text);
  }

  keepThis() {
    this.writing.keepVersion(this.writing.text());
    this.write(this.shown());
  }

  showVersions() {
    const all = this.writing.versions().map((one, i) => [one, i]).reverse();
    const named = ({ at, text }) => `${new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}, ${this.writing.size(text)}`;
    this.list.replaceChildren(h("option", { value: "" }, "Earlier versions"), ...all.map(([one, i]) => h("option", { value: i }, named(one))));
    this.list.hidden = !all.length;
  }

  restore() {
    const found = this.writing.versions()[this.list.value];
    if (!found) return;
    this.remember();
    this.replace(found.text);
  }

  // The page is left: what could not be saved is an earlier version.
  close() {
    if (this.newer() !== undefined) this.remember();
  }
}
