// Your own run: reads traces of torch.profiler here in the browser, and shows where the step went. Nothing is uploaded.

import { button, h, save } from "./dom.js";
import { Picture } from "./picture.js";

const MOST = 100e6, SECONDS = 300;

export class ProfilePage {
  constructor(main, python) {
    Object.assign(this, { python, pictures: [] });
    this.files = h("input", { type: "file", id: "traces", multiple: true, accept: ".json,.gz", onchange: () => this.read() });
    this.state = h("p", { id: "profile-state", role: "status" });
    this.found = h("div", { id: "profile" });
    main.replaceChildren(h("section", { class: "profile" },
      h("h1", {}, "Where did the step of your own run go?"),
      h("p", {}, "Choose what torch.profiler wrote, one .json or .json.gz file for each rank. The files are read in this browser and stay here; up to 100 MB unpacked."),
      h("p", {}, h("label", { for: "traces" }, "Files of one run: "), this.files), this.state, this.found));
  }

  async read() {
    this.close();
    this.found.replaceChildren();
    this.state.textContent = "Reading\u2026";
    try {
      const files = [];
      let size = 0;
      for (const file of this.files.files) {
        const text = await textOf(file, MOST - size);
        size += text.length;
        files.push([file.name, text]);
      }
      this.show(await this.python.call("profile", [files], SECONDS));
      this.state.textContent = "";
    } catch (why) {
      this.state.textContent = why.message;
    }
  }

  show({ text, views, lines, csv }) {
    const leads = lines.filter(([, mark]) => mark !== null).map(([line, mark]) =>
      h("li", {}, line, " ", button("Show the cell", () => { this.pictures[0].shown.choose(mark); this.pictures[0].place.scrollIntoView({ block: "nearest" }); })));
    const places = views.map((view) => [view, h("div", {})]);
    this.found.replaceChildren(
      h("pre", {}, text),
      csv && button("Save the better order (CSV for PyTorch)", () => save("better.csv", new Blob([csv], { type: "text/csv" }))),
      leads.length && h("ul", {}, leads),
      ...places.flatMap(([view, place]) => [h("h2", {}, view.heading), place]));
    this.pictures = places.map(([view, place]) => {
      const picture = new Picture(place);
      picture.colour = view.run.colour;
      picture.show(view);
      return picture;
    });
  }

  loading() {}
  close() {
    for (const picture of this.pictures) picture.close();
    this.pictures = [];
  }
}

// A file as text, unpacked if it begins as gzip does.
async function textOf(file, room) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isPacked = head[0] === 0x1f && head[1] === 0x8b;
  const stream = isPacked ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const parts = [], decoder = new TextDecoder();
  let size = 0;
  try {
    for (const reader = stream.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > room) throw new RangeError("These files have more than 100 MB unpacked; profile fewer steps, or use 'puzzles profile' in a terminal.");
      parts.push(decoder.decode(value, { stream: true }));
    }
  } catch (why) {
    if (why instanceof RangeError) throw why;
    throw new Error(`${file.name} is cut off; the profiler was stopped while it wrote`);
  }
  return parts.join("") + decoder.decode();
}
