// What this browser keeps: the player's code with earlier versions, timetables made by hand, stars, hints, the theme. Where
// nothing can be written, because there is no room or storage is off, it all stays in memory.

// Sites on one host have a key each. What was kept before they had is under the name alone.
const NAME = "training-puzzles", SITE = new URL(".", location.href).pathname;
const KEY = SITE === "/" ? NAME : `${NAME} ${SITE}`, DAMAGED = `${KEY}-damaged`;
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
let kept = empty(), isAsked = false; // the browser, to keep it for good
const pending = new Map(); // changes that are not written yet

// All that is stored, without what is damaged; null where storage is off.
function read() {
  let text;
  try {
    text = localStorage.getItem(KEY) ?? localStorage.getItem(NAME);
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
    if (!isAsked) navigator.storage?.persist?.().catch(() => {});
    isAsked = true;
  } catch {
    // it stays in memory, and the next change tries again
  }
}

current();
export const isKept = () => pending.size === 0;

export const codes = () => current().codes;

// What a player writes for a puzzle, by the part that it is kept in: how its text is stored, and how it is counted.
const WRITTEN = {
  codes: { key: (slug) => slug, read: (text) => text, stored: (text) => text, size: (text) => `${text.split("\n").length} lines` },
  drafts: { key: (slug) => `${slug}/timetable`, read: tableText, stored: tableRows, size: (text) => `${text.match(/\S+/g)?.length ?? 0} cells` },
};

export function tableText(rows) { return rows.map((row) => row.join(" ")).join("\n"); }
export function tableRows(text) { return text.split("\n").map((row) => row.match(/\S+/g) ?? []); }

// A puzzle's code or timetable as a text, with earlier versions. Of a `blank` text nothing is kept.
export class Writing {
  constructor(part, slug, blank) {
    Object.assign(this, WRITTEN[part], { part, slug, blank });
    this.name = WRITTEN[part].key(slug); // of its versions
  }

  // As it is kept now, perhaps by another tab.
  text() {
    const value = current()[this.part][this.slug];
    return value == null ? this.blank : this.read(value);
  }

  keep(text) { change([this.part, this.slug, text === this.blank ? null : this.stored(text)]); }

  versions() { return kept.versions[this.name] ?? []; }

  // Remembers a text as an earlier version; while somebody writes, at most one in a minute.
  keepVersion(text, isTyped = false) {
    current();
    const old = this.versions(), last = old.at(-1), at = Date.now();
    if (text === this.blank || last?.text === text || (isTyped && last && at - last.at < APART)) return;
    change(["versions", this.name, [...old, { at, text }].slice(-VERSIONS)]);
  }
}

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

// The player's own code and timetables that differ from the entries of a file.
export function replacedBy(entries) {
  const all = Object.keys(WRITTEN).flatMap((part) => Object.keys(entries[part] ?? {}).map((slug) => new Writing(part, slug)));
  return all.filter((own) => ![undefined, own.read(entries[own.part][own.slug])].includes(own.text()));
}

// What becomes of an entry that is both in this browser and in a file. Of all others the file's is taken.
const JOINED = {
  best: (own, given) => ({ stars: Math.max(own.stars, given.stars) }),
  hints: Math.max,
  versions: (own, given) => [...own.filter((one) => !given.some(({ at, text }) => at === one.at && text === one.text)), ...given],
};

// Keeps entries of a file. What they replace becomes an earlier version.
export function restore(entries) {
  const own = current(), replaced = replacedBy(entries).map((writing) => [writing, writing.text()]);
  const joined = (part, name, value) => (name in own[part] && JOINED[part] ? JOINED[part](own[part][name], value) : value);
  change(...Object.keys(FITS).flatMap((part) => Object.entries(entries[part] ?? {}).map(([name, value]) => [part, name, joined(part, name, value)])));
  for (const [writing, text] of replaced) writing.keepVersion(text);
}

// Calls a listener when another tab has stored something.
export function onOtherTab(listener) {
  addEventListener("storage", (event) => { if (event.key === KEY || event.key === null) listener(); });
}
