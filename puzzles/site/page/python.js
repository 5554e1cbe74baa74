// The page's end of the worker: calls with a limit of time, and a new worker after one that had to be ended.

export class Stopped extends Error {}

export class Python {
  // `onstate` is told "loading", "ready" or "broken".
  constructor(onstate) {
    this.onstate = onstate;
    this.start();
  }

  start() {
    this.waiting = new Map();
    this.last = 0;
    this.state("loading");
    this.worker = new Worker("worker.js", { type: "module" });
    this.worker.onerror = (event) => this.state("broken", event.message || "the worker could not be loaded");
    this.worker.onmessage = ({ data }) => this.hear(data);
  }

  state(name, why = "") {
    this.is = name;
    this.onstate(name, why);
  }

  hear(data) {
    if (data.ready) return this.state("ready");
    if (data.broken) return this.state("broken", data.broken);
    const call = this.waiting.get(data.id);
    if (!call) return;
    if (data.begun) {
      if (call.seconds) call.timer = setTimeout(() => this.stop(`it took longer than ${call.seconds} s`), call.seconds * 1000);
      return;
    }
    clearTimeout(call.timer);
    this.waiting.delete(data.id);
    if (data.error) call.fail(new Error(data.error)); else call.done(data.value);
  }

  // What a function of in_browser/api.py returns. Of a player's code: at most so many seconds.
  call(name, given = [], seconds = 0) {
    return new Promise((done, fail) => {
      const id = ++this.last;
      this.waiting.set(id, { done, fail, seconds });
      this.worker.postMessage({ id, name, given });
    });
  }

  // Ends everything under way, and begins again.
  stop(why = "you stopped it") {
    this.worker.terminate();
    for (const call of this.waiting.values()) {
      clearTimeout(call.timer);
      call.fail(new Stopped(why));
    }
    this.start();
  }
}
