// The menu: all puzzles, links, pictures to keep, files with what this browser keeps, the theme.

import { button, h, save, tell } from "./dom.js";
import { makeMovie, makePng, makeWebp } from "./movie.js";
import { shareLink } from "./share.js";
import * as store from "./store.js";
import { apply, isDark, toggle } from "./theme.js";

export function addMenu(place, { catalog, python, page, refresh }) {
  const file = h("input", { type: "file", accept: ".json,.py", hidden: true, onchange: () => file.files[0] && openFile(file.files[0]) });

  // Does something with the page that is open, and says so if that fails.
  const onPage = (what) => async () => {
    for (const menu of place.querySelectorAll("details")) menu.open = false;
    if (!page()?.puzzle) return tell("Open a puzzle first.");
    try {
      await what(page());
    } catch (why) {
      tell(why.message);
    }
  };
  const drawn = (what) => onPage(async (open) => {
    if (!open.picture.isOwn) throw new Error("There is no picture yet: nothing has run.");
    await what(open, open.puzzle.slug);
  });

  const filmed = (name, make) => drawn(async ({ picture }, slug) => {
    if (!picture.shown) throw new Error("This picture has no time, so there is no film of it.");
    save(`${slug}.${name}`, await make(picture));
  });

  const share = menu("Share",
    button("Copy a link to my code", onPage((open) => shareLink(python, open.puzzle.slug, "code", open.text()))),
    button("Copy a link to the run only", drawn(async ({ puzzle }, slug) => {
      if (!puzzle.saved) throw new Error("A run of this puzzle cannot be judged again elsewhere. Share the code.");
      await shareLink(python, slug, "run", await python.call("trace"));
    })),
    h("p", {}, "A link holds everything itself; nothing is uploaded."),
    button("Picture (PNG)", drawn(async (open, slug) => save(`${slug}.png`, await makePng(await python.call("picture", [open.picture.chosen(), isDark()]))))),
    button("Picture (SVG)", drawn(async (open, slug) => save(`${slug}.svg`, new Blob([await python.call("picture", [open.picture.chosen(), isDark()])], { type: "image/svg+xml" })))),
    button("Film of the run (WebP)", filmed("webp", makeWebp)),
    button("Film of the run (GIF)", filmed("gif", makeMovie)));
  const mine = menu("My solutions",
    button("Save everything in a file", () => { mine.open = false; save("training-puzzles.json", new Blob([store.everything()], { type: "application/json" })); }),
    button("Save my code as .py files (zip)", saveCode),
    button("Open a saved file", () => file.click()),
    h("p", {}, "Your work is kept in this browser only. The file with everything brings back code, timetables, earlier versions, stars and hints; 'puzzles grade --one-student FOLDER' grades the unzipped .py files."));
  place.append(h("a", { href: "#", class: "item" }, "Puzzles"), h("a", { href: "#profile", class: "item" }, "Your own run"), share, mine, file,
    button("◐", toggle, { "aria-label": "Light or dark", title: "Light or dark", id: "light" }));

  async function saveCode() {
    mine.open = false;
    const codes = store.codes();
    if (!Object.keys(codes).length) return tell("There is no code to save: no starter has been changed.");
    try {
      const bytes = Uint8Array.from(atob(await python.call("zipped", [codes])), (c) => c.charCodeAt(0));
      save("my_solutions.zip", new Blob([bytes], { type: "application/zip" }));
    } catch (why) {
      tell(`Nothing was saved: ${why.message}.`);
    }
  }

  // A file with everything, or Python.
  async function openFile(chosen) {
    mine.open = false;
    file.value = "";
    try {
      const { entries, isWhole } = await (chosen.name.endsWith(".json") ? savedIn(chosen) : codesIn(chosen));
      const replaced = store.replacedBy(entries).map(({ name }) => name);
      if (replaced.length && !confirm(`This replaces your ${replaced.join(", ")}. The present ones stay among the earlier versions. Go on?`)) return;
      store.restore(entries);
      apply();
      const names = Object.keys(entries.codes).join(", ") || "what it has";
      tell(isWhole ? `Opened ${names}.` : `Part of ${chosen.name} is damaged and was left out. Opened ${names}.`);
      refresh();
    } catch (why) {
      tell(`${chosen.name} was not opened: ${why.message}.`);
    }
  }

  async function savedIn(chosen) {
    const saved = store.fromFile(await chosen.text());
    if (!saved) throw new Error("it is not a file that 'Save everything in a file' wrote, or is cut off");
    return saved;
  }

  // A file that is named after a puzzle may be unfinished.
  async function codesIn(chosen) {
    const text = await chosen.text(), named = chosen.name.replace(/\.py$/, ""), isPlayed = (slug) => Object.hasOwn(catalog.puzzles, slug) && catalog.puzzles[slug].played;
    const found = await python.call("split", [text]).catch((why) => {
      if (isPlayed(named)) return {};
      throw why;
    });
    const codes = Object.fromEntries(Object.entries(found).filter(([slug]) => isPlayed(slug)));
    if (!Object.keys(codes).length && isPlayed(named)) codes[named] = text;
    if (!Object.keys(codes).length) throw new Error("it defines no puzzle that is played here");
    return { entries: { codes }, isWhole: true };
  }
}

function menu(title, ...items) {
  const element = h("details", { class: "menu" }, h("summary", {}, title), h("div", {}, ...items));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    element.open = false;
    element.firstChild.focus();
  });
  document.addEventListener("click", (event) => { if (!element.contains(event.target)) element.open = false; });
  return element;
}
