// The web worker: loads Python and the game, then answers one call after another. A loop that does not end blocks only
// this worker, which the page ends and starts again.

/* global PYTHON: the folder of Python, which the builder fills in */

async function load() {
  const game = fetch(`${PYTHON}/game.zip`).then((answer) => {
    if (!answer.ok) throw new Error(`game.zip: ${answer.status}`);
    return answer.arrayBuffer();
  });
  const { loadPyodide } = await import(`./${PYTHON}/pyodide.mjs`);
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
    try {
      postMessage({ id, ...JSON.parse(await answer(name, JSON.stringify(given))) });
    } catch (why) {
      postMessage({ id, error: String(why).trim().split("\n").at(-1) });
      throw why; // also for the console
    }
  });
};
