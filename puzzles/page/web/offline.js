// The service worker: keeps every file of this version of the site, so that it works without a network. Before a file is
// kept, and each time that it is served, its digest is compared with the one that the builder wrote here. A page has files
// of one version only: a newer version waits until the pages of the older one are closed, or until one that is alone asks it
// to take over, before it loads anything.

const OWN = `training-puzzles ${new URL(registration.scope).pathname} `; // other sites of this host have caches of their own
const CACHE = OWN + VERSION;
const BEFORE = /^training-puzzles-[0-9a-f]{16}$/; // caches of versions that did not name their site
const address = (name) => new URL(name, registration.scope).href;
const FILE_AT = new Map(Object.keys(DIGESTS).map((name) => [address(name), name])).set(address("."), "index.html");

async function isGenuine(name, answer) {
  const digest = await crypto.subtle.digest("SHA-256", await answer.clone().arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("") === DIGESTS[name];
}

// A file of this version, or an error. What the page has loaded already is not loaded again, unless it is an older one.
async function fetched(name) {
  for (const cache of ["force-cache", "reload"]) {
    const answer = await fetch(address(name === "index.html" ? "." : name), { cache });
    if (answer.ok && await isGenuine(name, answer)) return answer;
  }
  throw new Error(`${name} is not the file of this version`);
}

addEventListener("install", (event) => event.waitUntil((async () => {
  const cache = await caches.open(CACHE);
  const first = Object.keys(DIGESTS).filter((name) => !LATER.includes(name));
  await Promise.all(first.map(async (name) => cache.put(address(name), await fetched(name))));
  if (!registration.active) await skipWaiting(); // the first version
})()));

addEventListener("message", (event) => event.waitUntil((async () => {
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const isAlone = pages.filter(({ url }) => url.startsWith(registration.scope)).length === 1;
  event.ports[0].postMessage({ isAlone });
  if (isAlone) await skipWaiting();
})()));

addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => (name.startsWith(OWN) || BEFORE.test(name)) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
})()));

async function served(name) {
  const cache = await caches.open(CACHE), kept = await cache.match(address(name));
  if (kept && await isGenuine(name, kept)) return kept;
  const answer = await fetched(name);
  await cache.put(address(name), answer.clone());
  return answer;
}

// Files of this version come from the cache. What is not a part of it, such as the documentation, comes from the network.
addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url), name = FILE_AT.get(origin + pathname);
  if (event.request.method === "GET" && name) event.respondWith(served(name));
});
