// The verdict in words: stars, figures as bars with a mark at the target, the message, the next move.

import { h } from "./dom.js";
import { pictureOf } from "./picture.js";

export const starsText = (count) => "★".repeat(count) + "☆".repeat(3 - count);

// `more` gets what comes below the picture.
export function showVerdict(place, more, verdict, { onhint, onnext, oncompare }) {
  const isPassed = verdict.status === "passed";
  place.dataset.status = verdict.status;
  place.dataset.stars = verdict.stars;
  place.replaceChildren(
    h("p", { class: "headline" },
      verdict.stars || verdict.measures.length ? h("span", { class: "stars", role: "img", "aria-label": `${verdict.stars} of 3 stars` }, starsText(verdict.stars)) : null,
      h("b", {}, verdict.headline), ...moves(verdict, onhint, onnext, oncompare)),
    ...verdict.measures.map(meter),
    verdict.message ? h("p", { class: "message" }, verdict.line ? `Line ${verdict.line}: ${verdict.message}` : verdict.message) : "",
    isPassed ? "" : h("p", { class: "next" }, verdict.next));
  more.replaceChildren(
    isPassed ? h("p", { class: "next" }, verdict.next) : "",
    verdict.praise ? h("p", { class: "praise" }, verdict.praise) : "",
    ...verdict.notes.map((note) => h("p", {}, `Note: ${note}`)),
    verdict.details.length ? h("details", {}, h("summary", {}, "Margins, bounds, notes and calls"),
      ...verdict.details.map((one) => h("p", {}, one)), h("p", { class: "story" })) : h("p", { class: "story" }),
    folded(verdict.why_title, verdict.why, verdict.why_matters));
}

function* moves(verdict, onhint, onnext, oncompare) {
  if (verdict.status === "over_target" || verdict.status === "failed") {
    yield h("button", { type: "button", class: "link", onclick: onhint }, "Give me a hint");
  }
  if (verdict.status === "passed" && oncompare) yield h("button", { type: "button", class: "link", id: "compare", onclick: oncompare }, "Compare");
  if (verdict.status === "passed" && onnext) {
    yield h("button", { type: "button", class: "go", onclick: onnext.go }, `Next: ${onnext.title}`);
  }
}

// What is known of a timetable that is being made: its figures with their targets and lower bounds.
export function showHand(place, more, draft) {
  place.dataset.status = "by_hand";
  more.replaceChildren();
  const placed = draft.wanted - draft.missing.length;
  place.replaceChildren(
    h("p", { class: "headline" }, h("b", {}, draft.missing.length ? `${placed} of ${draft.wanted} cells` : "Complete")),
    ...(draft.measures ?? []).map(meter),
    h("p", { class: "message" }, draft.refusal ?? ""),
    draft.measures ? h("p", { class: "live" }, `Makespan ${plain(draft.makespan)} (end of the last operation), bubble ${Math.round(100 * draft.bubble)} %, as far as the cells can be computed.`) : "");
}

const plain = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

// A figure as a bar, with a mark at its target.
function meter(measure) {
  const share = Math.min(100, (80 * measure.value) / (measure.target || 1));
  return h("div", { class: `meter ${measure.met ? "met" : "missed"}` },
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill", style: `width:${share}%` }), h("span", { class: "target" })),
    h("span", {}, h("b", {}, measure.text), ` ${measure.words}${measure.meaning && ` (${measure.meaning})`}, target ${measure.target_text}`, measure.met ? "" : " (missed)", measure.least ? `, lower bound ${plain(measure.least)}` : ""));
}

function folded(title, lines, open) {
  return lines.length ? h("details", { open }, h("summary", {}, title), h("pre", { tabindex: "0" }, lines.join("\n"))) : "";
}

// The reference beside the player's code: both runs in one picture, and the lines that differ. It takes the place of the
// picture, until `onback`.
export function showCompared(place, { lines, picture }, onback) {
  place.replaceChildren(
    h("p", { class: "bar" }, h("b", {}, "Yours, and the reference"), h("button", { type: "button", id: "uncompare", onclick: onback }, "Back to your run")),
    picture ? pictureOf(picture, "Your run above the run of the reference") : "",
    h("pre", { class: "differing", tabindex: "0" }, lines.map((line) => h("span", { class: line.startsWith("- ") ? "mine" : line.startsWith("+ ") ? "theirs" : "" }, `${line}\n`))));
}

// How much of Python has come, until there is a verdict. Screen readers hear of the beginning only.
export function showLoading(place, come, all) {
  if (place.dataset.status) return;
  const bar = place.querySelector("progress") ?? h("progress", { "aria-label": "Python is loading" });
  const isComing = come < all;
  if (isComing) Object.assign(bar, { max: all, value: come }); else bar.removeAttribute("value");
  const words = isComing ? `Python is loading: ${(come / 1e6).toFixed(1)} of ${(all / 1e6).toFixed(1)} MB, ${Math.floor((100 * come) / all)} %` : "Python is starting";
  if (!bar.isConnected) place.replaceChildren(h("p", { class: "loading" }, bar, " ", h("span", { "aria-hidden": "true" })));
  place.querySelector("span").textContent = words;
}

// Sentences in the place of a verdict.
function showInstead(place, status, headline, message, next) {
  place.dataset.status = status;
  place.dataset.stars = 0;
  place.replaceChildren(h("p", { class: "headline" }, h("b", {}, headline)), h("p", { class: "message" }, message), h("p", { class: "next" }, next));
}

const where = (line) => (line ? ` Line ${line} was running.` : "");

export const showStopped = (place, why, line) => showInstead(place, "stopped", "Stopped",
  `The run was ended: ${why}.${where(line)} Look for a loop that does not end, or a computation that is too large.`, "Change your code, or press Run, to run it again.");

export const showJudging = (place) => showInstead(place, "judging", "Judging\u2026", "", "The run has ended, and its verdict is computed.");

export const showUnjudged = (place, why) => showInstead(place, "stopped", "Stopped", `The judgement was ended: ${why}.`, "Change your code, or press Run, to run it again.");

// What ended Python itself, by the text of the error.
const CRASHES = [
  [/call stack|recursion/i, "A function of this code calls itself too deeply. Let it end, or use a loop."],
  [/memory|allocation|array buffer/i, "This code used up all memory. Make fewer or smaller objects."],
  [/exit/i, "This code ended Python itself. Let the function return instead."],
];

export const showCrashed = (place, why, line) => showInstead(place, "stopped", "Python ended",
  (CRASHES.find(([pattern]) => pattern.test(why))?.[1] ?? `This code ended Python itself (${why}).`) + where(line), "Change your code, or press Run, to run it again.");

export const showBroken = (place, why, advice) => showInstead(place, "broken", "Python could not be loaded",
  `The reason: ${why}.`, `${advice} Your code is kept.`);

export const showUnrun = (place) => showInstead(place, "unrun", "Not run yet", "", "Read the code, then press Run to see its verdict and its picture.");
