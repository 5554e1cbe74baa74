// Python, from the page: one that judges and draws and never runs a player's code, one that runs the code of this puzzle,
// and a spare for the next. All are workers of the sandboxed frame; what they say is text.

/* global PYTHON: the folder of Python, SIZES: bytes of its files, both of which the builder fills in */

import { painted } from "./dom.js";
import { frame } from "frame";

const JUDGE = "puzzles.page.in_browser.api", PLAYER = "puzzles.page.in_browser.player";
const PLAYER_SECONDS = 5, JUDGE_SECONDS = 30;
const SOON = 500, SILENCE = 20_000; // milliseconds
const FORBIDDEN = ["the host of this site forbids the sandboxed frame in which Python runs, such as in a Content-Security-Policy that it sends", "Tell whoever publishes the site."];
const LEFT = "another page was opened";
const NUMPY_SECONDS = 20; // instead of the player's, where numpy has to be imported first
const NAMES = { wasm: "pyodide.asm.wasm", stdlib: "python_stdlib.zip", game: "game.zip", script: "worker.js", lock: "pyodide-lock.json" };
const FILES = Object.fromEntries(Object.entries(NAMES).map(([name, file]) => [name, { address: `${PYTHON}/${file}`, size: SIZES[file] }]));

export class Stopped extends Error {}
export class Crashed extends Error {}

// One worker: calls, in order.
class Worker {
  constructor(frame, module, onready, onbroken) {
    Object.assign(this, { frame, onready, onbroken, waiting: new Map(), last: 0, id: frame.add(this), isUsed: false, isReady: false });
    this.frame.order("start", { worker: this.id, module });
  }

  hear(data) {
    if (data.broken) return this.onbroken(data.broken);
    if (data.begun) return this.limit(this.waiting.get(data.begun));
    if (data.going) return this.waiting.get(data.id)?.ongoing?.(data.going);
    const said = read(data.text);
    if (data.id === "ready") {
      if (said.error) return this.onbroken(said.error);
      this.isReady = true;
      return this.onready(this);
    }
    const call = this.waiting.get(data.id);
    if (!call) return;
    clearTimeout(call.timer);
    this.waiting.delete(data.id);
    if ("error" in said) call.fail(said.crashed ? new Crashed(said.error) : new Error(said.error)); else call.done(said.value);
  }

  limit(call) {
    if (call?.seconds && !call.timer) call.timer = setTimeout(() => call.late(`it took longer than ${call.seconds} s`), call.seconds * 1000);
  }

  // What a function of Python returns; `late` is called after so many seconds, and `ongoing` with what it tells meanwhile.
  call(name, given, seconds, late, ongoing) {
    this.isUsed = true;
    return new Promise((done, fail) => {
      const id = ++this.last, call = { done, fail, seconds, late, ongoing };
      // One that is free begins at once, unless what an earlier call left behind keeps it busy.
      if (this.isReady && !this.waiting.size) this.limit(call);
      this.waiting.set(id, call);
      this.frame.order("ask", { worker: this.id, id, name, given: JSON.stringify(given) });
    });
  }

  end(why) {
    this.frame.order("end", { worker: this.id });
    this.frame.remove(this);
    for (const call of this.waiting.values()) {
      clearTimeout(call.timer);
      call.fail(new Stopped(why));
    }
    this.waiting.clear();
  }
}

function read(text) {
  try {
    const said = JSON.parse(text);
    if (said !== null && typeof said === "object") return said;
  } catch { /* it is said below */ }
  return { error: "its answer cannot be read", crashed: true };
}

// The frame, with its workers by number.
class Frame {
  constructor(onprogress, onbroken, shown) {
    this.workers = new Map();
    this.count = 0;
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.port.onmessage = ({ data }) => {
      if (data.here) clearTimeout(this.silence);
      else if (data.worker) this.workers.get(data.worker)?.hear(data);
      else onbroken(data.broken);
    };
    const element = Object.assign(document.createElement("iframe"), { srcdoc: frame, hidden: true, title: "Python" });
    element.sandbox.add("allow-scripts");
    const isLoaded = new Promise((done) => element.addEventListener("load", done, { once: true }));
    document.body.append(element);
    const haveCome = shown.then(painted).then(() => loaded(FILES, onprogress));
    haveCome.then(() => { this.silence = setTimeout(() => onbroken(...FORBIDDEN), SILENCE); }, () => {});
    Promise.all([haveCome, isLoaded]).then(([files]) => {
      element.contentWindow.postMessage(files, "*", [port2]);
    }).catch((why) => onbroken(why.message));
  }

  // Workers that are started from now on get more files, as soon as these have come.
  async give(files, onprogress) {
    this.order("expect");
    const more = await loaded(files, onprogress);
    this.port.postMessage({ order: "give", more });
  }

  add(worker) { this.workers.set(++this.count, worker); return this.count; }
  remove(worker) { this.workers.delete(worker.id); }
  order(order, given) { this.port.postMessage({ order, ...given }); }
}

// Files of Python as blobs; `onprogress` is told how many of all bytes have come.
function loaded(files, onprogress) {
  const all = Object.values(files).reduce((sum, one) => sum + one.size, 0);
  return new Promise((done, fail) => {
    const loader = new globalThis.Worker("loader.js");
    loader.onerror = () => fail(new Error("its loader could not be started"));
    loader.onmessage = ({ data: { come, found, why } }) => {
      if (come) return onprogress(come, all);
      loader.terminate();
      if (why) return fail(new Error(why));
      onprogress(all, all);
      done(found);
    };
    loader.postMessage({ files });
  });
}

export class Python {
  // `onstate` is told "loading" as `progress` changes, which has the bytes that have come and all of them;
  // "ready" and whether a spare is; or "broken" with a reason. Nothing is loaded before `shown` is fulfilled.
  constructor(onstate, shown) {
    this.onstate = onstate;
    const broken = this.broken = (why, advice = "Check the connection, then reload the page.") => this.state("broken", why, advice);
    this.progress = [0, 1];
    this.page = 0; // counts those that were opened
    this.onprogress = (...progress) => {
      this.progress = progress;
      if (this.is === "loading") onstate("loading");
    };
    this.frame = new Frame(this.onprogress, broken, shown);
    this.make = (module) => new Worker(this.frame, module, () => this.ready(), broken);
    this.state("loading");
    this.judge = this.make(JUDGE);
    this.player = this.make(PLAYER);
  }

  state(name, ...more) {
    this.is = name;
    [this.why, this.advice] = more;
    this.onstate(name, ...more);
  }

  ready() {
    if (!this.judge.isReady || !this.player.isReady) return;
    clearTimeout(this.soon); // a run and its verdict come first
    this.soon = setTimeout(() => { this.spare ??= this.make(PLAYER); }, SOON);
    this.state("ready", Boolean(this.spare?.isReady));
  }

  // A function of api.py, in the Python that never runs a player's code. What was given can end it: then another one comes.
  async call(name, given = [], seconds = JUDGE_SECONDS) {
    const { judge, page } = this;
    try {
      return await judge.call(name, given, seconds, (why) => this.endJudge(why, judge));
    } catch (why) {
      if (why instanceof Crashed) this.endJudge("Python ended", judge);
      if (why.message === LEFT && page === this.page) return this.call(name, given, seconds); // it waited for what an older page had asked
      throw why;
    }
  }

  // Ends what the judge is doing; another one takes over.
  endJudge(why = "you stopped it", judge = this.judge) {
    if (this.judge !== judge) return;
    this.judge = this.make(JUDGE);
    this.state("loading");
    judge.end(why);
  }

  // The record of the runs of a player's code. `ongoing` is told what was printed since the last time, and the line that runs.
  async run(slug, text, ongoing) {
    const { player } = this;
    try {
      return await player.call("run", [slug, text], this.hasNumpy ? NUMPY_SECONDS : PLAYER_SECONDS, (why) => this.stop(why, player), ongoing);
    } catch (why) {
      if (why instanceof Crashed) this.stop("", player);
      throw why;
    }
  }

  // Ends what the player's code is doing; the spare takes over.
  stop(why = "you stopped it", player = this.player) {
    if (this.player !== player) return;
    this.player = this.spare || this.make(PLAYER);
    this.spare = null;
    player.end(why);
    if (this.player.isReady) this.ready(); else this.state("loading");
  }

  // Every Python has numpy from now on, with what computes with it: `files` by name. Those without it end.
  bring(files) {
    if (this.hasNumpy) return;
    this.hasNumpy = true;
    const before = [this.judge, this.player, this.spare];
    this.frame.give(files, this.onprogress).catch((why) => this.broken(why.message));
    this.judge = this.make(JUDGE);
    this.player = this.make(PLAYER);
    this.spare = null;
    for (const one of before) one?.end(LEFT);
    this.state("loading");
  }

  // A Python in which no code has run yet.
  refresh() {
    if (this.player.isUsed) this.stop("");
  }

  // The same for another page. What the last one has asked for ends soon.
  renew() {
    this.page++;
    if (this.player.isUsed) this.stop(LEFT);
    const { judge } = this, asked = [...judge.waiting.keys()];
    setTimeout(() => { if (asked.some((id) => judge.waiting.has(id))) this.endJudge(LEFT, judge); }, SOON);
  }
}
