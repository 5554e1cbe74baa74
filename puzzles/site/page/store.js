// What this browser keeps: the player's code with earlier versions, timetables made by hand, stars, hints, the theme. Where
// nothing can be written, because there is no room or storage is off, it all stays in memory.

const KEY = "training-puzzles", DAMAGED = `${KEY}-damaged`;
const VERSIONS = 10, APART = 60_000; // earlier versions of a code, and milliseconds between two of them while it is typed

const isText = (value) => typeof value === "string";
const isCount = (value) => Number.isInteger(value) && value >= 0;
const isList = (value, fits) => Array.isArray(value) && value.every(fits);
const FITS = {
  codes: isText,
  best: (value) => isCount(value?.stars) && value.stars <= 3,
  hints: isCount,
  drafts: (value) => isList(value, (row) => isList(row, isText)),
  versions: (value) => isList(value, (one) => isCount(one?.at) && isText(one.text)),
  look: isText,
};
const empty = () => Object.fromEntries(Object.keys(FITS).map((part) => [part, Object.create(null)]));

export let isDamaged = false; // part of what was kept could not be read
let kept = empty();
const pending = new Map(); // changes that are not written yet

// All that is stored, without what is damaged; null where storage is off.
function read() {
  let text;
  try {
    text = localStorage.getItem(KEY);
  } catch {
    return null;
  }
  const found = empty();
  if (text !== null && !take(parsed(text), found)) {
    isDamaged = true;
    try { localStorage.setItem(DAMAGED, text); } catch { /* there is no room for a copy */ }
  }
  return found;
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

// Takes what fits of stored data; false if something does not.
function take(stored, found) {
  if (stored === null || typeof stored !== "object") return false;
  let isSound = true;
  for (const [part, fits] of Object.entries(FITS)) {
    const entries = Object.hasOwn(stored, part) ? stored[part] : {};
    if (entries === null || typeof entries !== "object") { isSound = false; continue; }
    for (const [name, value] of Object.entries(entries)) {
      if (fits(value)) found[part][name] = value; else isSound = false;
    }
  }
  return isSound;
}

// The stored data with the changes that are still to be written.
function current() {
  kept = read() ?? kept;
  for (const [part, name, value] of pending.values()) {
    if (value == null) delete kept[part][name]; else kept[part][name] = value;
  }
  return kept;
}

// Two tabs share the storage; each changes only its own entries.
function change(...entries) {
  for (const [part, name, value] of entries) pending.set(`${part} ${name}`, [part, name, value]);
  const all = current();
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
    pending.clear();
  } catch {
    // it stays in memory, and the next change tries again
  }
}

current();
export const isKept = () => pending.size === 0;

export const code = (slug) => kept.codes[slug];
export const codes = () => current().codes;
export const keepCode = (slug, text) => change(["codes", slug, text]);
// The code as it is stored now, perhaps by another tab.
export const newestCode = (slug) => current().codes[slug];

export const versions = (slug) => kept.versions[slug] ?? [];

// Remembers a text as an earlier version; while somebody types, at most one in a minute.
export function keepVersion(slug, text, isTyped = false) {
  const old = current().versions[slug] ?? [], last = old.at(-1), at = Date.now();
  if (text == null || last?.text === text || (isTyped && last && at - last.at < APART)) return;
  change(["versions", slug, [...old, { at, text }].slice(-VERSIONS)]);
}

export const draft = (slug) => kept.drafts[slug];
export const keepDraft = (slug, rows) => change(["drafts", slug, rows.some((row) => row.length) ? rows : null]);

export const stars = (slug) => kept.best[slug]?.stars || 0;
export const keepStars = (slug, count) => { if (count > stars(slug)) change(["best", slug, { stars: count }]); };

export const hints = (slug) => kept.hints[slug] || 0;
export const keepHints = (slug, count) => { if (count > hints(slug)) change(["hints", slug, count]); };

export const theme = () => kept.look.theme;
export const keepTheme = (name) => change(["look", "theme", name]);

// All that is kept, as the text of a file.
export const everything = () => JSON.stringify(current());

// What the text of such a file has, and whether all of it fits; null if it is no such file.
export function fromFile(text) {
  const entries = empty(), isWhole = take(parsed(text), entries);
  return Object.values(entries).some((part) => Object.keys(part).length) ? { entries, isWhole } : null;
}

// The puzzles for which this browser has other code than these.
export const differing = (codes) => Object.keys(codes).filter((slug) => kept.codes[slug] != null && kept.codes[slug] !== codes[slug]);

// What becomes of an entry that is both in this browser and in a file. Of all others the file's is taken.
const JOINED = {
  best: (own, given) => ({ stars: Math.max(own.stars, given.stars) }),
  hints: Math.max,
  versions: (own, given) => [...own.filter((one) => !given.some(({ at, text }) => at === one.at && text === one.text)), ...given],
};

// Keeps entries of a file. Code that they replace becomes an earlier version.
export function restore(entries) {
  const own = current(), replaced = differing(entries.codes).map((slug) => [slug, own.codes[slug]]);
  const joined = (part, name, value) => (name in own[part] && JOINED[part] ? JOINED[part](own[part][name], value) : value);
  change(...Object.keys(FITS).flatMap((part) => Object.entries(entries[part] ?? {}).map(([name, value]) => [part, name, joined(part, name, value)])));
  for (const [slug, text] of replaced) keepVersion(slug, text);
}

// Calls a listener when another tab has stored something.
export function onOtherTab(listener) {
  addEventListener("storage", (event) => { if (event.key === KEY || event.key === null) listener(); });
}
