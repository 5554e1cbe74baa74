// The web worker: loads Python and the game, then answers one call after another. A loop that does not end blocks only
// this worker, which the page ends and starts again.

import { loadPyodide } from "./pyodide/pyodide.mjs";

async function load() {
  const game = fetch("game.zip").then((answer) => {
    if (!answer.ok) throw new Error(`game.zip: ${answer.status}`);
    return answer.arrayBuffer();
  });
  const python = await loadPyodide();
  python.FS.writeFile("/game.zip", new Uint8Array(await game));
  python.runPython('import sys; sys.path.insert(0, "/game.zip")');
  return python.pyimport("puzzles.site.in_browser.api").answer;
}

const loading = load();
loading.then(() => postMessage({ ready: true }), (why) => postMessage({ broken: String(why) }));

let before = loading;
onmessage = ({ data: { id, name, given } }) => {
  before = before.catch(() => {}).then(async () => {
    const answer = await loading;
    postMessage({ id, begun: true });
    postMessage({ id, ...JSON.parse(await answer(name, JSON.stringify(given))) });
  });
};
