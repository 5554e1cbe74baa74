// The body of a function: for every text that is seen its contrast by WCAG 2.2 (1.4.3), and the least for its size.
// Controls that cannot be used are excepted there; what is on a canvas has its own tests (tests/drawing/test_palette.py).

const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const known = new Map();
function rgba(colour) { // of any notation, as the browser paints it
  if (!known.has(colour)) {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    known.set(colour, [r, g, b, a / 255]);
  }
  return known.get(colour);
}
const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
const linear = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
const luminance = (colour) => { const [r, g, b] = colour.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
function ground(element) { // what is behind its text
  const layers = [];
  for (let one = element; one; one = one.parentElement) {
    const colour = rgba(getComputedStyle(one).backgroundColor);
    layers.push(colour);
    const selection = one.matches(".cm-content") && document.querySelector(".cm-selectionBackground");
    if (selection) layers.push(rgba(getComputedStyle(selection).backgroundColor)); // a layer below the text
    if (colour[3] > 0.999) break;
  }
  return layers.reverse().reduce((below, colour) => over(colour, below), [255, 255, 255]);
}
function opacity(element) {
  let share = 1;
  for (let one = element; one; one = one.parentElement) share *= getComputedStyle(one).opacity;
  return share;
}
function check(element, words, style) {
  const below = ground(element), [r, g, b, a] = rgba(style.color), share = a * opacity(element);
  const one = luminance(over([r, g, b, share], below)), other = luminance(below);
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  return { words: words.trim().slice(0, 40), path: `${element.tagName}.${element.className}`, ratio, least: large ? 3 : 4.5 };
}
const found = [], shown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest("button:disabled, .skip, [hidden]");
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const { parentElement: element, data } = walker.currentNode, range = document.createRange();
  if (!data.trim() || element.closest("script, style, noscript, canvas") || !shown(element)) continue;
  range.selectNodeContents(walker.currentNode);
  if (range.getBoundingClientRect().width < 1 || opacity(element) === 0) continue;
  found.push(check(element, data, getComputedStyle(element)));
}
for (const field of document.querySelectorAll("textarea, select")) if (shown(field)) found.push(check(field, field.value, getComputedStyle(field)));
return found;
