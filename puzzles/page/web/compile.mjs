// Compiles the Python files of a folder with Pyodide's own Python, so that a browser need not. Given the game's archive, it
// compiles only those of Python's library that the game imports when it starts.
// node compile.mjs PYODIDE FOLDER [GAME]

import { readFileSync } from "node:fs";

const [, , pyodide, folder, game] = process.argv;
try {
  const { loadPyodide } = await import(pyodide);
  const python = await loadPyodide();
  python.mountNodeFS("/work", folder);
  if (game) python.unpackArchive(new Uint8Array(readFileSync(game)), "zip", { extractDir: "/game" });
  const done = python.runPython(game ? `
import py_compile, sys
sys.path.insert(0, "/game")
import puzzles.page.in_browser.api, puzzles.page.in_browser.shown
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
for name in {file.partition(".zip/")[2] for file in files if "/python3" in file} - {""}:
    py_compile.compile(f"/work/{name}", f"/work/{name}c", name, True, 2, py_compile.PycInvalidationMode.UNCHECKED_HASH)
True
` : `
import compileall, py_compile
never = py_compile.PycInvalidationMode.UNCHECKED_HASH
compileall.compile_dir("/work", quiet=1, legacy=True, stripdir="/work", invalidation_mode=never)
`);
  process.exitCode = done ? 0 : 1;
} catch (why) {
  console.error(String(why.message || why).slice(-2000)); // without node's excerpt, which is a line of a megabyte
  process.exitCode = 1;
}
