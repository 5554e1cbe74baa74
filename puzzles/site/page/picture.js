// The live picture of a run: the elements that `drawing` makes for files, in the middle of ours.

import { elements, viewer } from "viewer";
import { h, svgAddress } from "./dom.js";
import { onTheme } from "./theme.js";

const ROOM = 0.17; // of the window, for the rows of all ranks, where the picture stands beside the code

export class Picture {
  constructor(place, nothing = "Nothing has happened yet: the picture of your run comes here.") {
    this.place = place;
    this.nothing = nothing;
    this.colour = "layer";
    this.shown = null;
  }

  // A view, a picture as SVG, or nothing.
  show(view) {
    const before = this.place.querySelector("#colour");
    if (before) this.colour = before.value;
    this.close();
    if (!view) return this.place.replaceChildren(h("p", { class: "nothing" }, this.nothing));
    if (typeof view === "string") return this.place.replaceChildren(h("img", { src: svgAddress(view), alt: "What the code has made" }));
    const isWide = matchMedia("(min-width: 1200px)").matches;
    this.place.dataset.room = isWide ? Math.round(innerHeight * ROOM) : "";
    this.place.innerHTML = elements; // what our builder wrote; the words of the run come as text
    this.place.querySelector("#text").textContent = view.text;
    this.place.querySelector("#timeline").textContent = view.summary;
    this.place.querySelector("#timeline").setAttribute("aria-label", view.label);
    this.shown = viewer(this.place, view.run);
    this.leave = onTheme((dark) => this.shown.theme(dark));
    if (this.colour !== view.run.colour) {
      this.place.querySelector("#colour").value = this.colour;
      this.place.querySelector("#colour").dispatchEvent(new Event("change"));
    }
  }

  // What the player has the colours show.
  chosen() {
    return this.place.querySelector("#colour")?.value || this.colour;
  }

  // The run in so many steps of time, as pixels.
  frames(count) {
    const canvas = this.place.querySelector("canvas");
    return this.shown.frames(count, () => {
      const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
      const onto = copy.getContext("2d", { willReadFrequently: true });
      onto.fillStyle = getComputedStyle(document.body).backgroundColor;
      onto.fillRect(0, 0, copy.width, copy.height);
      onto.drawImage(canvas, 0, 0);
      return onto.getImageData(0, 0, copy.width, copy.height);
    });
  }

  close() {
    if (this.shown) { this.leave(); this.shown.close(); }
    this.shown = null;
  }
}
