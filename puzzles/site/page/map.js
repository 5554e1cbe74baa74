// The map: chapters in the order of play, each with its puzzles and their stars.

import { h } from "./dom.js";
import { Picture } from "./picture.js";
import { stars } from "./store.js";
import { starsText } from "./verdict.js";

export function showMap(main, catalog) {
  const played = (track) => catalog.chapters.filter((chapter) => chapter.track === track);
  const isNew = !Object.keys(catalog.puzzles).some((slug) => stars(slug));
  const next = (isNew && catalog.puzzles.warm_up) || firstOpen(catalog);
  const moving = h("div", { class: "picture moving", "aria-hidden": "true" });
  main.replaceChildren(
    h("section", { class: "welcome" },
      h("div", {},
        h("h1", {}, "How are large models trained on many devices?"),
        h("p", { class: "lead" }, "Write the schedule yourself, in a few lines of async Python. It runs here in your browser, is judged at once, and is drawn as a picture."),
        h("p", {}, h("a", { class: "go", href: `#${next.slug}` }, isNew ? `Begin: ${next.title}` : `Go on with ${next.title}`))),
      h("figure", {}, moving, h("figcaption", {}, "Four ranks train one model: each has a layer, and each colour is a microbatch."))),
    ...Object.entries(catalog.tracks).map(([name, track]) =>
      h("section", { class: "track" },
        h("h2", {}, track.title), h("p", { class: "idea" }, sentence(track.idea)),
        awayText(name),
        h("ol", { class: "chapters" }, played(name).map((chapter) => chapterOf(chapter, catalog))))),
    board(catalog));
  function awayText(name) {
    const { lacking } = catalog.puzzles[played(name)[0].slugs[0]];
    return lacking ? h("p", { class: "away" }, `${lacking} The statements and pictures are here.`) : "";
  }
  return catalog.first && moves(moving, catalog.first);
}

// A schedule that plays again and again, unless the reader wants no motion. It is closed as a puzzle is.
function moves(place, run) {
  const picture = new Picture(place);
  picture.colour = run.run.colour;
  picture.show(run);
  place.querySelector("#timeline").tabIndex = -1;
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) picture.shown.play(true, true);
  return picture;
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

function chapterOf(chapter, catalog) {
  const puzzles = chapter.slugs.map((slug) => catalog.puzzles[slug]), played = puzzles[0].played;
  const sum = puzzles.reduce((all, puzzle) => all + stars(puzzle.slug), 0);
  return h("li", { class: "chapter" },
    h("h3", {}, chapter.title, played ? h("span", { class: "sum" }, ` ★ ${sum} of ${3 * puzzles.length}`) : ""),
    chapter.idea ? h("p", {}, sentence(chapter.idea)) : "",
    h("ol", { class: "stops" }, puzzles.map((puzzle) => h("li", {}, stop(puzzle)))));
}

function stop(puzzle) {
  const count = stars(puzzle.slug);
  return h("a", { class: `stop ${puzzle.played ? "" : "elsewhere"} ${count >= 2 ? "passed" : count ? "begun" : ""}`, href: `#${puzzle.slug}` },
    h("span", { class: "slug" }, puzzle.slug),
    h("span", { class: "name" }, puzzle.title),
    puzzle.mark ? h("span", { class: `mark ${puzzle.mark}`, title: puzzle.place }, puzzle.mark) : "",
    puzzle.played ? h("span", { class: "stars", role: "img", "aria-label": `${count} of 3 stars` }, starsText(count)) : "");
}

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

// A leaderboard, if there was one in the folder `board` when the site was built.
const board = (catalog) => (catalog.board ? h("p", {}, h("a", { href: "board/" }, "The leaderboard")) : "");
