// Completion and help: the members of `model` with their parameters and what they do, and the calls of the puzzle with F1.

import { autocompletion, completionKeymap, startCompletion } from "@codemirror/autocomplete";
import { hoverTooltip, keymap } from "@codemirror/view";
import { h } from "./dom.js";

const plain = (html) => Object.assign(document.createElement("p"), { innerHTML: html }).textContent; // what our builder wrote

// `members` are of `model`, `calls` those that the puzzle's statement lists, each with its meaning.
export function completing({ members, calls }) {
  const options = members.map(([label, parameters, info]) => ({
    label, detail: parameters, info, type: parameters ? "method" : "property", boost: calls.some(([line]) => line.includes(`.${label}(`)) ? 1 : 0,
    apply: parameters ? (view, _, from, to) => put(view, from, to, `${label}(`, ")") : label,
  }));
  const listed = calls.filter(([line]) => /^(await )?[\w.]+\(.*\)$/.test(line)).map(([line, meaning]) => ({ label: line, info: plain(meaning), type: "function" }));

  function source(context) {
    const member = context.matchBefore(/\bmodel\.\w*$/);
    if (member) return { from: member.from + "model.".length, options, validFor: /^\w*$/ };
    if (!context.explicit) return null;
    const word = context.matchBefore(/[\w.]*$/);
    return { from: word.from, options: listed, filter: false };
  }

  const help = hoverTooltip((view, at) => {
    const line = view.state.doc.lineAt(at);
    for (const found of line.text.matchAll(/\bmodel\.(\w+)/g)) {
      const from = line.from + found.index, to = from + found[0].length, member = members.find(([name]) => name === found[1]);
      if (member && from <= at && at <= to) {
        return { pos: from, end: to, create: () => ({ dom: h("div", { class: "help" }, h("code", {}, `model.${member[0]}${member[1]}`), h("p", {}, member[2])) }) };
      }
    }
    return null;
  });

  const keys = keymap.of([{ key: "F1", run: startCompletion }, ...completionKeymap]);
  return [autocompletion({ override: [source], icons: false }), help, keys];
}

// Puts the cursor between the parentheses.
function put(view, from, to, before, after) {
  view.dispatch({ changes: { from, to, insert: before + after }, selection: { anchor: from + before.length } });
}
