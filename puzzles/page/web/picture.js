// The live picture of a run: the elements that `drawing` makes for files, in the middle of ours.

import { elements, viewer } from "viewer";
import { h, svgAddress } from "./dom.js";
import { onTheme } from "./theme.js";

const ROOM = 0.17; // of the window, for the rows of all ranks, where the picture stands beside the code

// A picture as SVG, at its own size, so that its labels can be read.
export const pictureOf = (svg, alt) => h("div", { class: "scrolls", tabindex: "0" }, h("img", { src: svgAddress(svg), alt }));

export class Picture {
  // `par` is the address of the reference's run, which is shown where nothing has run; without it there is a sentence.
  constructor(place, par, nothing = "Nothing has happened yet: the picture of your run comes here.") {
    Object.assign(this, { place, par, nothing });
    this.colour = "layer";
    this.shown = null;
    this.isOwn = false; // it is of what has run
  }

  // A view, a picture as SVG, or nothing.
  async show(view) {
    this.view = view;
    if (view || !this.par) return this.draw(view);
    if (this.shown && !this.isOwn) return;
    this.loading ??= fetch(this.par).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
    const par = await this.loading;
    if (!this.view && this.place.isConnected) this.draw(par, Boolean(par));
  }

  draw(view, isPar = false) {
    const before = this.place.querySelector("#colour");
    if (before) this.colour = before.value;
    this.close();
    this.isOwn = Boolean(view) && !isPar;
    this.place.classList.toggle("par", isPar);
    if (!view) return this.place.replaceChildren(h("p", { class: "nothing" }, this.nothing));
    if (typeof view === "string") return this.place.replaceChildren(pictureOf(view, "What the code has made"));
    const isWide = matchMedia("(min-width: 1200px)").matches;
    this.place.dataset.room = isWide ? Math.round(innerHeight * ROOM) : "";
    this.place.innerHTML = elements; // what our builder wrote; the words of the run come as text
    if (isPar) this.place.prepend(h("p", { class: "nothing" }, "Par, the run of the reference: ", h("b", {}, view.summary), ". Yours takes its place."));
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
