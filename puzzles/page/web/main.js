// The page: which part of it the address names, the menu, and Python in the background.

import { button, h, painted, tell } from "./dom.js";
import { MapPage } from "./map.js";
import { ProfilePage } from "./profile.js";
import { PuzzlePage } from "./puzzle.js";
import { Python } from "./python.js";
import { addMenu } from "./menu.js";
import { lacking } from "./needs.js";
import { readLink } from "./share.js";
import { showElsewhere } from "./sheet.js";
import * as store from "./store.js";
import { apply } from "./theme.js";

const main = document.getElementById("main");
let page = null, catalog = null;
let routes = 0, mapScroll = 0; // pages that were asked for, and where the map was left
apply();
// What a fold has opened comes into view.
main.addEventListener("click", async ({ target }) => {
  const fold = target.closest("summary")?.parentElement;
  await painted();
  if (fold?.open) fold.scrollIntoView({ block: "nearest" });
});
// The service worker starts when the page has what it needs: it then takes those files from what the browser has loaded.
let isSiteKept = false;
function keepSite() {
  if (isSiteKept || !("serviceWorker" in navigator)) return; // not on file: or plain http
  isSiteKept = true;
  navigator.serviceWorker.register("offline.js").catch(() => {});
}

let show; // called when the page shows what the address names: then Python comes
const shown = new Promise((done) => { show = done; });
const python = new Python((state, ...more) => {
  document.documentElement.dataset.python = state;
  document.documentElement.dataset.spare = state === "ready" && more[0];
  const words = { loading: "Python is loading", ready: "", broken: `Python could not be loaded: ${more[0]}. ${more[1]}` }[state];
  const place = document.getElementById("state");
  if (place.textContent !== words) place.textContent = words; // it is told of each piece that comes
  page?.loading?.();
  if (state !== "loading") keepSite();
}, shown);

// The list of puzzles, or null after a sentence on why there is none.
async function loadCatalog() {
  try {
    const answer = await fetch("puzzles.json");
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const found = await answer.json();
    for (const puzzle of Object.values(found.puzzles)) {
      puzzle.lacking = lacking(puzzle, found.numpy);
      puzzle.played = !puzzle.lacking;
    }
    return found;
  } catch (why) {
    main.dataset.page = "broken";
    main.replaceChildren(h("p", { class: "banner", role: "alert" }, `The list of puzzles could not be loaded: ${why.message}. Your code is still kept in this browser. `,
      button("Try again", () => location.reload(), { class: "go" })));
    return null;
  }
}

function showTotal() {
  const played = Object.values(catalog.puzzles).filter((puzzle) => puzzle.played);
  const sum = played.reduce((all, puzzle) => all + store.stars(puzzle.slug), 0);
  document.getElementById("total").textContent = `★ ${sum} of ${3 * played.length}`;
}

// A part of the address; one that is damaged stays as it is.
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// The address: #, #slug, #slug/code/DATA, #slug/run/DATA.
async function route() {
  const number = ++routes;
  if (page instanceof MapPage) mapScroll = scrollY;
  const [slug, kind, data] = location.hash.slice(1).split("/").map(decoded);
  if (page) {
    page.close();
    python.renew();
  }
  page = null;
  showTotal();
  if (slug === "profile") {
    page = new ProfilePage(main, python);
    document.title = "Your own run - Training Puzzles";
    main.dataset.page = "profile";
    return scrollTo(0, 0);
  }
  const puzzle = Object.hasOwn(catalog.puzzles, slug) ? catalog.puzzles[slug] : null;
  document.title = puzzle ? `${puzzle.title} - Training Puzzles` : "Training Puzzles";
  if (slug && !puzzle) tell(`There is no puzzle ${slug}; here are all of them.`);
  if (!puzzle) {
    const map = page = new MapPage(main, catalog);
    scrollTo(0, 0);
    await map.isWhole;
    if (page !== map) return;
    scrollTo(0, mapScroll);
    main.dataset.page = "map";
    return;
  }
  if (!puzzle.played) showElsewhere(main, puzzle, catalog);
  else {
    let shared = {};
    try {
      shared = await readLink(kind, data);
      if (shared.timetable != null && !puzzle.timetable) throw new Error("This puzzle has no timetable by hand. Here is the puzzle itself.");
    } catch (why) {
      tell(why.message);
    }
    if (number !== routes) return; // another page was asked for meanwhile
    if (puzzle.needs.includes("numpy")) python.bring(catalog.numpy);
    page = new PuzzlePage(main, catalog, puzzle, python, shared);
    page.onstars = showTotal;
  }
  main.dataset.page = slug;
  scrollTo(0, 0);
}

async function begin() {
  catalog = await loadCatalog();
  if (!catalog) return show();
  addMenu(document.getElementById("menu"), { catalog, python, page: () => page, refresh: route });
  addEventListener("hashchange", route);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); }); // the address stays
  addEventListener("beforeunload", (event) => { if (!store.isKept() || page?.isUnsaved?.()) event.preventDefault(); });
  store.onOtherTab(() => page?.look?.());
  await route();
  show();
  if (store.isDamaged) tell("Part of what this browser kept is damaged and was left out. The rest is here; a copy of all of it is kept.");
}

await begin();
