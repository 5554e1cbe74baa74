// What there is to read of a puzzle: the statement, what is new, the calls, the hints one by one, the idea behind it.

import { button, h, svgAddress } from "./dom.js";
import * as store from "./store.js";
import { onTheme } from "./theme.js";

// Of the catalog, `dark` has the colours of sketches on dark pages, and `docs` is the documentation's address.
export function sheet(puzzle, { dark, docs }) {
  const wide = !matchMedia("(max-width: 899px)").matches; // on a phone the calls are to be looked up
  const made = h("aside", { class: "sheet", "aria-label": "The puzzle", tabindex: "0" },
    h("div", { html: puzzle.statement }),
    puzzle.setting.length ? settingTable(puzzle.setting) : "",
    puzzle.picture ? figure(puzzle, dark) : "",
    ...puzzle.sections.map((section) => h("details", { open: wide, class: "calls" }, h("summary", {}, section.title),
      h("dl", {}, section.lines.flatMap(([line, meaning]) => [h("dt", {}, h("code", {}, line)), h("dd", { html: meaning })])))),
    hintsOf(puzzle),
    ...puzzle.background.map(([title, html]) => h("details", {}, h("summary", {}, title), h("div", { html }))),
    puzzle.place ? h("p", { class: "place" }, `${puzzle.place}.`) : "",
    docs ? h("p", {}, h("a", { href: `${docs}puzzles/${puzzle.slug}/`, class: "docs" }, "This puzzle in the documentation"), ", ", h("a", { href: `${docs}mistakes/`, class: "docs" }, "twenty mistakes")) : "",
    h("details", {}, h("summary", {}, "Sources"), h("ul", {}, puzzle.sources.map((html) => h("li", { html })))));
  for (const one of made.querySelectorAll("pre")) one.tabIndex = 0; // where it scrolls, the keyboard reaches it
  return made;
}

function settingTable(rows) {
  const [head, ...rest] = [["Here", "", "in the classics"], ...rows];
  return h("div", { class: "scrolls" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "what"), h("th", {}, "here"), h("th", {}, head[2]))),
    h("tbody", {}, rest.map((row) => h("tr", {}, row.map((cell) => h("td", { html: cell })))))));
}

// The whole sketch in the colours of the page, as wide as there is room; or at its own size, where its labels are too small.
function figure(puzzle, dark) {
  const image = h("img", { alt: `Sketch for ${puzzle.title}` });
  const leave = onTheme((isDark) => {
    if (image.src && !image.isConnected) return leave();
    const drawn = isDark ? puzzle.picture.replaceAll(/#[\da-f]{6}\b|#fff\b/gi, (colour) => dark[colour.toLowerCase()] ?? colour) : puzzle.picture;
    image.src = svgAddress(drawn);
  });
  const larger = button("Enlarge the sketch", () => {
    const isLarge = place.classList.toggle("large");
    larger.textContent = isLarge ? "Show the whole sketch" : "Enlarge the sketch";
  }, { class: "link", hidden: true });
  const place = h("figure", { class: "sketch" }, h("div", { class: "scrolls", tabindex: "0" }, image), larger);
  new ResizeObserver(() => { larger.hidden = image.naturalWidth <= place.clientWidth; }).observe(image);
  return place;
}

function hintsOf(puzzle) {
  const place = h("div", {}), count = puzzle.hints.length;
  let shown = 0;
  const more = button("", () => { show(shown + 1); place.lastElementChild.scrollIntoView({ block: "nearest" }); });
  function show(upTo) {
    for (; shown < upTo; shown++) place.append(h("div", { class: "hint" }, h("b", {}, `Hint ${shown + 1}`), h("div", { html: puzzle.hints[shown] })));
    if (upTo) store.keepHints(puzzle.slug, upTo);
    more.textContent = shown ? `Hint ${shown + 1} of ${count}` : `First of ${count} hints`;
    more.hidden = shown === count;
  }
  show(store.hints(puzzle.slug));
  return h("details", { class: "hints" }, h("summary", {}, "Hints"), place, more);
}

// A puzzle that is not played here: why, and all there is to read.
export function showElsewhere(main, puzzle, catalog) {
  main.replaceChildren(
    h("div", { class: "heading" }, h("h1", {}, puzzle.heading), h("p", {}, puzzle.limits)),
    h("p", { class: "banner" }, puzzle.lacking, " To play it on your machine, install the game and type ", h("code", {}, `puzzles start ${puzzle.slug}`), "."),
    h("div", { class: "read" }, sheet(puzzle, catalog),
      h("section", { class: "code" }, h("h2", {}, "Starter"), h("pre", { class: "starter", tabindex: "0" }, h("code", {}, puzzle.starter)))));
}
