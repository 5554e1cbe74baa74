// The map: chapters in the order of play, each with its puzzles and their stars.

import { h } from "./dom.js";
import { firstOpen } from "./path.js";
import { Picture } from "./picture.js";
import { stars } from "./store.js";
import { starsText } from "./verdict.js";

const welcome = document.getElementById("welcome"); // it is in the document, so that it shows before any script runs

export function showMap(main, catalog) {
  const played = (track) => catalog.chapters.filter((chapter) => chapter.track === track);
  const isNew = !Object.keys(catalog.puzzles).some((slug) => stars(slug));
  const next = (isNew && catalog.puzzles.warm_up) || firstOpen(catalog);
  welcome.hidden = false;
  welcome.querySelector(".begin").replaceChildren(h("a", { class: "go", href: `#${next.slug}` }, isNew ? `Begin: ${next.title}` : `Go on with ${next.title}`));
  main.replaceChildren(
    welcome,
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
  return catalog.first && moves(welcome.querySelector(".moving"), catalog.first);
}

// A schedule that plays again and again: a curtain moves over its picture, which costs no drawing. It is closed as a
// puzzle is.
function moves(place, { run, ...words }) {
  const picture = new Picture(place);
  picture.colour = run.colour;
  picture.show({ ...words, run: { ...run, traffic: { ...run.traffic, most: 0 } } });
  place.querySelector("#timeline").tabIndex = -1;
  place.append(h("div", { class: "curtain" }));
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

// A leaderboard, if there was one in the folder `board` when the site was built.
const board = (catalog) => (catalog.board ? h("p", {}, h("a", { href: "board/" }, "The leaderboard")) : "");
