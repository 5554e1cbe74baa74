// The sandboxed frame: owns the workers in which Python runs. Its origin is opaque, so neither it nor a worker reaches
// what the site keeps, and its policy lets nothing be fetched: the page hands it all files. It passes texts on, and of a
// worker only the answers to what was asked, and how that goes.

const LONGEST = 40_000_000; // characters of an answer
const MOST_HEARD = 300_000; // messages on how one goes, and characters in them

let files, port, give;
const workers = new Map();

addEventListener("message", (event) => {
  if (port || event.source !== parent || !event.ports[0] || origin !== "null") return;
  [port] = event.ports;
  port.postMessage({ here: true });
  files = prepared(event.data);
  files.catch((why) => port.postMessage({ broken: String(why) }));
  port.onmessage = ({ data }) => orders[data.order](data);
});

async function prepared({ wasm, stdlib, game, lock, script }) {
  const packed = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const compiled = await WebAssembly.compile(await wasm.arrayBuffer());
  return { script: packed, given: { wasm: compiled, stdlib, game, lock: await lock.text() } };
}

// Starts a worker; null if it was ended before that.
async function started(id, module, asked) {
  const tell = (message) => port.postMessage({ worker: id, ...message });
  const { script, given } = await files;
  if (!workers.has(id)) return null;
  const worker = new Worker(script);
  worker.onerror = (event) => { event.preventDefault(); tell({ broken: event.message || "the worker could not be loaded" }); };
  let heard = 0;
  worker.onmessage = ({ data }) => {
    if (asked.get(data?.begun) === "waiting") {
      asked.set(data.begun, "begun");
      heard = 0;
      return tell({ begun: data.begun });
    }
    if (data?.going) {
      const { printed, line } = data.going;
      if (asked.get(data.id) !== "begun" || typeof printed !== "string" || !Number.isInteger(line)) return;
      heard += 1 + printed.length;
      return heard > MOST_HEARD || tell({ id: data.id, going: { printed, line } });
    }
    if (!asked.delete(data?.id)) return; // nobody has asked for this
    const isFit = typeof data.text === "string" && data.text.length <= LONGEST;
    tell({ id: data.id, text: isFit ? data.text : JSON.stringify({ error: "the answer is too long" }) });
  };
  worker.postMessage({ module, given });
  return worker;
}

const orders = {
  // Workers that are started from now on wait for more files.
  expect() {
    const coming = new Promise((done) => { give = done; });
    files = files.then(async (all) => ({ ...all, given: { ...all.given, ...await coming } }));
  },
  give({ more }) { give(more); },
  start({ worker: id, module }) {
    const asked = new Map([["ready", "begun"]]);
    workers.set(id, { asked });
    workers.get(id).worker = started(id, module, asked);
  },
  async ask({ worker: id, id: question, name, given }) {
    const { asked, worker } = workers.get(id) ?? {};
    asked?.set(question, "waiting");
    (await worker)?.postMessage({ id: question, name, given });
  },
  async end({ worker: id }) {
    const { worker } = workers.get(id) ?? {};
    workers.delete(id);
    (await worker)?.terminate();
  },
};
