// Links: a puzzle's code, a run of it or a timetable, compressed in the fragment of the address, which no browser sends to a server.
// puzzles/page/in_browser/calls.py makes them.

import { tell } from "./dom.js";

const MAX_UNPACKED = 4_000_000; // characters that a link may unpack to

export async function readLink(kind, data) {
  if (!data) return {};
  const part = { code: "code", run: "trace", timetable: "timetable" };
  if (!Object.hasOwn(part, kind)) throw new Error("This link names neither code, a run nor a timetable; here is the puzzle itself.");
  return { [part[kind]]: await unpacked(data) };
}

async function unpacked(data) {
  try {
    const bytes = Uint8Array.from(atob(data.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const parts = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const reader = parts.pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
    let text = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      text += part.value;
      if (text.length > MAX_UNPACKED) throw new Error("too long");
    }
    return text;
  } catch {
    throw new Error("This link is damaged: copy the whole of it. Here is the puzzle itself.");
  }
}

// Copies a link, or shows it where the browser does not let a page copy.
export async function shareLink(python, slug, kind, text) {
  const link = `${location.href.split("#")[0]}#${await python.call("fragment", [slug, kind, text])}`;
  document.documentElement.dataset.link = link;
  try {
    await navigator.clipboard.writeText(link);
    tell(`Copied a link of ${link.length.toLocaleString("en")} characters.`);
  } catch {
    prompt("Copy this link:", link);
  }
}
