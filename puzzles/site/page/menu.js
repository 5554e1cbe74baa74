// The menu: all puzzles, links, pictures to keep, export and import, the theme.

import { button, h, save, tell } from "./dom.js";
import { makeMovie, makePng, makeWebp } from "./movie.js";
import { shareLink } from "./share.js";
import * as store from "./store.js";
import { isDark, toggle } from "./theme.js";

export function addMenu(place, { catalog, python, page, refresh }) {
  const file = h("input", { type: "file", accept: ".py,text/x-python", hidden: true, onchange: () => file.files[0] && importFrom(file.files[0]) });

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
    if (!open.picture.shown) throw new Error("There is no picture yet: nothing has run.");
    await what(open, open.puzzle.slug);
  });

  const share = menu("Share",
    button("Copy a link to my code", onPage((open) => shareLink(python, open.puzzle.slug, "code", open.text()))),
    button("Copy a link to the run only", drawn(async (open, slug) => shareLink(python, slug, "run", await python.call("trace")))),
    h("p", {}, "A link holds everything itself; nothing is uploaded."),
    button("Picture (PNG)", drawn(async (open, slug) => save(`${slug}.png`, await makePng(await python.call("picture", [open.picture.chosen(), isDark()]))))),
    button("Picture (SVG)", drawn(async (open, slug) => save(`${slug}.svg`, new Blob([await python.call("picture", [open.picture.chosen(), isDark()])], { type: "image/svg+xml" })))),
    button("Film of the run (WebP)", drawn(async (open, slug) => save(`${slug}.webp`, await makeWebp(open.picture)))),
    button("Film of the run (GIF)", drawn(async (open, slug) => save(`${slug}.gif`, await makeMovie(open.picture)))));
  const mine = menu("My solutions",
    button("Export all as a .py file", exportAll),
    button("Import a .py file", () => file.click()),
    h("p", {}, "'puzzles grade' takes the file. Your code is kept in this browser only."));
  place.append(h("a", { href: "#", class: "item" }, "Puzzles"), h("a", { href: "#profile", class: "item" }, "Your own run"), share, mine, file,
    button("◐", toggle, { "aria-label": "Light or dark", title: "Light or dark", id: "light" }));

  async function exportAll() {
    mine.open = false;
    const codes = store.codes();
    if (!Object.keys(codes).length) return tell("There is nothing to export: no starter has been changed.");
    try {
      save("my_solutions.py", new Blob([await python.call("export", [codes])], { type: "text/x-python" }));
    } catch (why) {
      tell(`Nothing was exported: ${why.message}.`);
    }
  }

  async function importFrom(chosen) {
    mine.open = false;
    file.value = "";
    try {
      const found = await python.call("split", [await chosen.text()]);
      const played = Object.keys(found).filter((slug) => catalog.puzzles[slug].played);
      if (!played.length) throw new Error("it defines no puzzle that is played here");
      const replaced = played.filter((slug) => store.code(slug) != null && store.code(slug) !== found[slug]);
      if (replaced.length && !confirm(`This replaces your code for ${replaced.join(", ")}. It stays among the earlier versions. Go on?`)) return;
      for (const slug of played) {
        store.keepVersion(slug, store.code(slug));
        store.keepCode(slug, found[slug]);
      }
      tell(`Imported ${played.join(", ")}.`);
      refresh();
    } catch (why) {
      tell(`${chosen.name} was not imported: ${why.message}.`);
    }
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
