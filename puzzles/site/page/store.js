// What this browser keeps: the player's code, stars and hints, and the theme.

const KEY = "training-puzzles";
const empty = () => ({ codes: {}, best: {}, hints: {}, theme: "" });

function read() {
  try {
    return { ...empty(), ...JSON.parse(localStorage.getItem(KEY) || "{}") };
  } catch {
    return empty();
  }
}

let kept = read();
export let isKept = true;

function write() {
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    isKept = false; // no room, or storage is off: play goes on without
  }
}

// Two tabs share the storage; each changes only its own entry.
function change(part, slug, value) {
  kept = read();
  if (value == null) delete kept[part][slug]; else kept[part][slug] = value;
  write();
}

export const code = (slug) => kept.codes[slug];
export const codes = () => ({ ...kept.codes });
export const keepCode = (slug, text) => change("codes", slug, text);

export const stars = (slug) => kept.best[slug]?.stars || 0;
export const keepStars = (slug, count) => { if (count > stars(slug)) change("best", slug, { stars: count }); };

export const hints = (slug) => kept.hints[slug] || 0;
export const keepHints = (slug, count) => { if (count > hints(slug)) change("hints", slug, count); };

export const theme = () => kept.theme;
export function keepTheme(name) {
  kept = { ...read(), theme: name };
  write();
}
