// The legend, from the data of the run: swatches and words, those of other colourings hidden. Shares its scope with rendering.js.

function element(tag, given, ...children) {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...children);
  return made;
}

function swatch(letter) {
  const made = element("b", { textContent: letter });
  made.dataset.swatch = letter;
  return made;
}

function legendItem({ before = [], words, after = [], colours, kind }) {
  const square = kind === undefined ? [] : [element("i", { className: "kind" })];
  for (const one of square) one.dataset.kind = kind;
  const first = [...before.map(swatch), ...square];
  const made = element("li", {}, ...first, first.length ? " " : "", words, after.length ? " " : "", ...after.map(swatch));
  if (colours) made.dataset.colour = colours.join(" ");
  return made;
}

$("legend").replaceChildren(
  ...run.legend.map(legendItem),
  element("li", {}, element("i", { className: "needed" }), " what it needs"),
  element("li", {}, element("i", { className: "needing" }), " what needs it"));
