// The page: which part of it the address names, the menu, and Python in the background.

import { button, h, tell } from "./dom.js";
import { showMap } from "./map.js";
import { PuzzlePage, showElsewhere } from "./puzzle.js";
import { Python } from "./python.js";
import { addMenu } from "./menu.js";
import { readLink } from "./share.js";
import { stars } from "./store.js";
import { apply, toggle } from "./theme.js";

const main = document.getElementById("main");
apply();
const python = new Python((state, ...more) => {
  document.documentElement.dataset.python = state;
  document.documentElement.dataset.spare = state === "ready" && more[0];
  document.getElementById("state").textContent = { loading: loadingText, ready: () => "", broken: brokenText }[state](...more);
});
function loadingText(come, all) {
  return come < all ? `Python is loading: ${(come / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB (${Math.floor((100 * come) / all)} %)` : "Python is starting";
}
function brokenText(why) { return `Python could not be loaded: ${why}. Reload the page.`; }
const catalog = await fetch("puzzles.json").then((answer) => answer.json());
let page = null;

function showTotal() {
  const played = Object.values(catalog.puzzles).filter((puzzle) => puzzle.played);
  const sum = played.reduce((all, puzzle) => all + stars(puzzle.slug), 0);
  document.getElementById("total").textContent = `★ ${sum} of ${3 * played.length}`;
}

// The address: #, #slug, #slug/code/DATA, #slug/run/DATA.
async function route() {
  const [slug, kind, data] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (slug === "main") return main.focus();
  page?.close();
  page = null;
  showTotal();
  const puzzle = catalog.puzzles[slug];
  document.title = puzzle ? `${puzzle.title} - Training Puzzles` : "Training Puzzles";
  if (slug && !puzzle) tell(`There is no puzzle ${slug}; here are all of them.`);
  if (!puzzle) showMap(main, catalog);
  else if (!puzzle.played) showElsewhere(main, puzzle);
  else {
    let shared = {};
    try {
      shared = await readLink(kind, data);
    } catch (why) {
      tell(why.message);
    }
    page = new PuzzlePage(main, catalog, puzzle, python, shared);
    page.onstars = showTotal;
  }
  main.dataset.page = puzzle ? slug : "map";
  scrollTo(0, 0);
}

addMenu(document.getElementById("menu"), { catalog, python, page: () => page, refresh: route });
addEventListener("hashchange", route);
await route();
if ("serviceWorker" in navigator) navigator.serviceWorker.register("offline.js").catch(() => {}); // not on file: or plain http
