// What a run prints, shown while it goes on, and the line that it has reached.

import { h } from "./dom.js";

export class Output {
  constructor() {
    this.text = h("pre", { tabindex: "0" });
    this.place = h("details", { class: "printed", open: true, hidden: true }, h("summary", {}, "What it printed"), this.text);
  }

  // What the last run has printed stays until this one prints, or ends.
  begin() {
    this.line = 0;
    this.isEmpty = true;
  }

  hear({ printed, line }) {
    this.line = line;
    if (!printed) return;
    if (this.isEmpty) this.text.textContent = "";
    this.isEmpty = this.place.hidden = false;
    this.text.append(printed);
  }

  end() { this.place.hidden = this.isEmpty; }
}
