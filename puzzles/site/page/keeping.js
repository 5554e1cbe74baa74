// Keeps the code of a puzzle while it is written: each change, earlier versions, and what to do when another tab has kept a
// newer one.

import { button, h, tell } from "./dom.js";
import * as store from "./store.js";

export class Keeping {
  // `place` gets the question which of two versions to take, `tools` the list of earlier ones; `editor` is asked for.
  constructor({ slug, starter }, { place, tools, editor }) {
    Object.assign(this, { slug, starter, place, editor });
    this.base = store.code(slug); // what this tab has read or written last
    this.isFirst = true;
    this.list = h("select", { class: "versions", "aria-label": "Earlier versions", onchange: () => this.restore() });
    tools.append(this.list);
    this.showVersions();
  }

  // A change that was typed.
  keep(text) {
    const value = text === this.starter ? undefined : text;
    if (this.newer() !== undefined) return this.ask();
    if (value === this.base) return;
    store.keepVersion(this.slug, this.base ?? this.starter, !this.isFirst);
    this.isFirst = false;
    this.write(value);
  }

  write(value) {
    store.keepCode(this.slug, value);
    this.base = value;
    this.place.hidden = true;
    this.showVersions();
    if (!store.isKept()) tell("This browser has no room for your code, or keeps nothing. Export it before you close the page.");
  }

  // The text before something else takes its place.
  remember() {
    store.keepVersion(this.slug, this.editor().text());
    this.showVersions();
  }

  // What another tab has kept since, as [its code]; undefined if there is nothing.
  newer() {
    const now = store.newestCode(this.slug);
    return now === this.base || (now ?? this.starter) === this.editor().text() ? undefined : [now ?? this.starter];
  }

  // Looks whether another tab has kept something.
  look() {
    if (this.newer() !== undefined) this.ask(); else this.place.hidden = true;
  }

  ask() {
    if (!this.place.hidden) return;
    this.place.replaceChildren(
      "Another tab has kept a newer version of this code. This one is not saved until you choose. ",
      button("Show the newer one", () => this.takeNewer(), { class: "go", id: "takenewer" }), " ",
      button("Keep this one", () => this.keepThis(), { id: "keepthis" }));
    this.place.hidden = false;
  }

  takeNewer() {
    const [text] = this.newer() ?? [];
    this.remember();
    this.base = store.newestCode(this.slug);
    this.place.hidden = true;
    if (text !== undefined) this.editor().replace(text);
  }

  keepThis() {
    store.keepVersion(this.slug, store.newestCode(this.slug));
    const text = this.editor().text();
    this.write(text === this.starter ? undefined : text);
  }

  showVersions() {
    const all = store.versions(this.slug).map((one, i) => [one, i]).reverse();
    const named = ({ at, text }) => `${new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}, ${text.split("\n").length} lines`;
    this.list.replaceChildren(h("option", { value: "" }, "Earlier versions"), ...all.map(([one, i]) => h("option", { value: i }, named(one))));
    this.list.hidden = !all.length;
  }

  restore() {
    const found = store.versions(this.slug)[this.list.value];
    if (!found) return;
    const { text } = found;
    this.remember();
    this.editor().replace(text);
  }

  // The page is left: what could not be saved is an earlier version.
  close() {
    if (this.newer() !== undefined) this.remember();
  }
}
