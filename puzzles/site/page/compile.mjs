// Compiles the Python files of a folder with Pyodide's own Python, so that a browser need not.
// node compile.mjs PYODIDE FOLDER

const [, , pyodide, folder] = process.argv;
try {
  const { loadPyodide } = await import(pyodide);
  const python = await loadPyodide();
  python.mountNodeFS("/work", folder);
  const done = python.runPython(`
import compileall, py_compile
never = py_compile.PycInvalidationMode.UNCHECKED_HASH
compileall.compile_dir("/work", quiet=1, legacy=True, stripdir="/work", invalidation_mode=never)
`);
  process.exitCode = done ? 0 : 1;
} catch (why) {
  console.error(String(why.message || why).slice(-2000)); // without node's excerpt, which is a line of a megabyte
  process.exitCode = 1;
}
