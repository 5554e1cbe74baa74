// The editor: Python with CodeMirror. Tab indents; Escape, then Tab leaves it. Errors are marked at their line, and `help`
// has what is completed.

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState, RangeSetBuilder } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { completing } from "./complete.js";

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword, tags.definitionKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.docString], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: tags.function(tags.definition(tags.variableName)), color: "var(--code-name)", fontWeight: "600" },
]);

// A line that is too long goes on below, further to the right than it begins.
const wrapped = EditorView.decorations.compute(["doc"], (state) => {
  const lines = new RangeSetBuilder();
  for (let number = 1; number <= state.doc.lines; number++) {
    const { from, text } = state.doc.line(number), columns = text.search(/\S|$/) + 4;
    lines.add(from, from, Decoration.line({ attributes: { style: `text-indent: -${columns}ch; padding-left: calc(${columns}ch + 6px)` } }));
  }
  return lines.finish();
});

// `onpause` gets the text when nothing was typed for a moment, `onchange` each time.
export function openEditor(place, { text, readOnly = false, label, help, onchange = () => {}, onpause = () => {}, onrun = () => {} }) {
  const PAUSE = 450;
  let timer = 0;
  const view = new EditorView({
    parent: place,
    doc: text,
    extensions: [
      lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(),
      indentUnit.of("    "), python(), syntaxHighlighting(colours), lintGutter(),
      EditorView.lineWrapping, wrapped,
      EditorState.tabSize.of(4),
      EditorState.readOnly.of(readOnly),
      EditorView.editable.of(!readOnly),
      EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": "keys", tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
      readOnly ? [] : completing(help),
      keymap.of([
        { key: "Mod-Enter", run: () => { onrun(); return true; } },
        ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab,
      ]),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        onchange(update.state.doc.toString());
        clearTimeout(timer);
        timer = setTimeout(onpause, PAUSE);
      }),
    ],
  });
  return {
    view,
    text: () => view.state.doc.toString(),
    replace: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    focus: () => view.focus(),
    mark(line, message) {
      const known = line > 0 && line <= view.state.doc.lines && message;
      const at = known && view.state.doc.line(line);
      const indent = at ? at.text.length - at.text.trimStart().length : 0;
      const found = known ? [{ from: at.from + indent, to: at.to, severity: "error", message }] : [];
      view.dispatch(setDiagnostics(view.state, found));
    },
    close() { clearTimeout(timer); view.destroy(); },
  };
}
