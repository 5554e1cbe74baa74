// A worker in the sandboxed frame: Python with one module of the game, which answers one call after another. A loop that
// does not end blocks only this worker.

import { loadPyodide } from "pyodide";
import createPyodideModule from "pyodide/pyodide.asm.mjs";

const report = postMessage.bind(globalThis);
const PAGE = 65_536, MOST = 1_000_000_000; // bytes

// Memory for a player's code: what takes more gets an error in time, not all that the machine has.
function limitMemory() {
  const { grow } = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (this.buffer.byteLength + pages * PAGE > MOST) throw new RangeError("no memory left");
    return grow.call(this, pages);
  };
}

async function load({ module, given: { wasm, stdlib, game, lock, wheel, arrays } }) {
  if (module.endsWith(".player")) limitMemory();
  // Nothing can be fetched here, so Pyodide gets what it asks for from the page.
  WebAssembly.instantiateStreaming = async (_, imports) => ({ instance: await WebAssembly.instantiate(wasm, imports), module: wasm });
  globalThis.fetch = async (address) => new Response({ zip: stdlib, whl: wheel }[String(address).split(".").at(-1)] ?? null);
  const nowhere = "https://python.invalid/";
  const python = await loadPyodide({ createPyodideModule, indexURL: nowhere, packageBaseUrl: nowhere, lockFileContents: lock });
  if (wheel) {
    const installed = await python.loadPackage("numpy", { messageCallback() {} });
    if (!installed.length) throw new Error("numpy could not be installed");
  }
  // As files, since the game reads some of its own.
  for (const archive of wheel ? [game, arrays] : [game]) python.unpackArchive(await archive.arrayBuffer(), "zip", { extractDir: "/game" });
  python._api.on_fatal = crashed; // then no call is ever answered
  python.runPython(`import sys; sys.path.insert(0, "/game")`);
  const made = python.pyimport(module);
  if (module.endsWith(".player")) made.send = (printed, line) => report({ id: current, going: { printed, line } });
  return made.answer;
}

let loading, before, current;

const crashed = (why) => report({ id: current, text: JSON.stringify({ error: String(why).trim().split("\n").at(-1), crashed: true }) });

onmessage = ({ data }) => {
  if (!loading) {
    loading = before = load(data);
    loading.then(() => report({ id: "ready", text: "{}" }), (why) => report({ id: "ready", text: JSON.stringify({ error: String(why) }) }));
    return;
  }
  const { id, name, given } = data;
  before = before.catch(() => {}).then(async () => {
    const answer = await loading;
    current = id;
    report({ begun: id });
    try {
      report({ id, text: await answer(name, given) });
    } catch (why) {
      crashed(why);
    }
  });
};
