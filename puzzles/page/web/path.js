// The order of play: which puzzle comes next.

import { stars } from "./store.js";

// The next puzzle of those played here, as `next_slug` of the game finds it: along the core path, without what comes
// before a solved puzzle; after an extra puzzle first the rest of its chapter.
export function firstOpen(catalog, after = "") {
  const { puzzles, chapters } = catalog, slugs = Object.keys(puzzles).filter((slug) => puzzles[slug].played);
  const core = catalog.path.flatMap((step) => step.slugs).filter((slug) => puzzles[slug]?.played);
  const solved = slugs.filter((slug) => stars(slug) >= 2), known = new Set(), waiting = [...solved];
  while (waiting.length) {
    const slug = waiting.pop();
    if (!known.has(slug)) waiting.push(...(catalog.after[slug] ?? []));
    known.add(slug);
  }
  const ready = (slug) => !known.has(slug) && (catalog.after[slug] ?? []).every((one) => known.has(one) || !puzzles[one]?.played);
  const later = core.slice(core.indexOf(after) + 1).filter(ready);
  const chapter = chapters.find((one) => one.slugs.includes(after))?.slugs ?? [];
  const rest = after && !core.includes(after) ? chapter.slice(chapter.indexOf(after) + 1) : [];
  const order = [...rest, ...later, ...core.filter((slug) => !known.has(slug)), ...slugs];
  return puzzles[order.find((slug) => slug !== after && stars(slug) < 2) || core[0]];
}
