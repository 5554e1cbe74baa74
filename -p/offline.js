const VERSION = "3e53c087aadb4eb8";
const FILES = ["icon.svg", "index.html", "main.js", "manifest.webmanifest", "puzzles.json", "python-f6b1dd02ff11/game.zip", "python-f6b1dd02ff11/pyodide-lock.json", "python-f6b1dd02ff11/pyodide.asm.mjs", "python-f6b1dd02ff11/pyodide.asm.wasm", "python-f6b1dd02ff11/pyodide.mjs", "python-f6b1dd02ff11/python_stdlib.zip", "style.css", "worker.js"];
// The service worker: keeps every file of this version of the site, so that it works without a network.

const CACHE = `training-puzzles-${VERSION}`;

addEventListener("install", (event) => event.waitUntil((async () => {
  const cache = await caches.open(CACHE);
  // What the page has loaded already is not loaded again: the folder of Python is named after its content.
  const asked = [".", ...FILES].map((name) => new Request(name, { cache: name.startsWith("python-") ? "force-cache" : "no-cache" }));
  await cache.addAll(asked);
  await skipWaiting();
})()));

addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("training-puzzles-") && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
})()));

// Files of this version come from the cache. What is not a part of it, such as a board, comes from the network.
addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.open(CACHE)
    .then((cache) => cache.match(event.request, { ignoreSearch: true }))
    .then((found) => found || fetch(event.request)));
});
