// The map: chapters in the order of play, each with its puzzles and their stars.

import { h, painted } from "./dom.js";
import { firstOpen } from "./path.js";
import { Picture } from "./picture.js";
import { stars } from "./store.js";
import { starsText } from "./verdict.js";

const AT_ONCE = 3; // chapters
const welcome = document.getElementById("welcome"); // it is in the document, so that it shows before any script runs

export class MapPage {
  constructor(main, catalog) {
    const isNew = !Object.keys(catalog.puzzles).some((slug) => stars(slug));
    const next = (isNew && catalog.puzzles.warm_up) || firstOpen(catalog);
    welcome.hidden = false;
    welcome.querySelector(".begin").replaceChildren(h("a", { class: "go", href: `#${next.slug}` }, isNew ? `Begin: ${next.title}` : `Go on with ${next.title}`));
    main.replaceChildren(welcome);
    this.isWhole = this.fill(main, catalog);
  }

  // The picture and a few chapters at a time, between which the page answers.
  async fill(main, catalog) {
    await painted();
    if (this.isLeft) return;
    if (catalog.first) this.picture = moves(welcome.querySelector(".moving"), catalog.first);
    for (const [name, track] of Object.entries(catalog.tracks)) {
      const chapters = catalog.chapters.filter((chapter) => chapter.track === name), list = h("ol", { class: "chapters" });
      const { lacking } = catalog.puzzles[chapters[0].slugs[0]];
      main.append(h("section", { class: "track" },
        h("h2", {}, track.title), h("p", { class: "idea" }, sentence(track.idea)),
        lacking ? h("p", { class: "away" }, `${lacking} The statements and pictures are here.`) : "", list));
      for (const [i, chapter] of chapters.entries()) {
        if (i % AT_ONCE === 0) await painted();
        if (this.isLeft) return;
        list.append(chapterOf(chapter, catalog));
      }
    }
  }

  close() {
    this.isLeft = true;
    this.picture?.close();
  }
}

// A schedule that plays again and again: a curtain moves over its picture, which costs no drawing.
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
