// Runs notebooks as JupyterLite's Python kernel does: IPython on Pyodide, with the wheel of the game beside them.
// node jupyterlite.mjs PYODIDE PACKAGES DRIVE: the folders of Pyodide, of pure packages, and of notebooks and wheel.
import { pathToFileURL } from "node:url";
const [pyodide, packages, drive, stubs] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`));
const python = await loadPyodide({ indexURL: `${pyodide}/` });
python.mountNodeFS("/packages", packages);
python.mountNodeFS("/drive", drive);
python.setStdout({ batched: (text) => console.error(text) });
python.globals.set("stubs", stubs);
const found = await python.runPythonAsync(`
import json, os, sys, types, zipfile
from glob import glob

sys.path.append("/packages")
for name in ("psutil", "resource"):  # the kernel has stand-ins for them too
    sys.modules[name] = types.ModuleType(name)
class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "greenlet"):  # compiled for this machine
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, NotHere())
for name, text in json.loads(stubs).items():
    os.makedirs(os.path.dirname(f"/stubs/{name}"), exist_ok=True)
    open(f"/stubs/{name}", "w").write(text)
sys.path.insert(0, "/stubs")

async def install(wheel):
    assert wheel.startswith("emfs:"), wheel
    zipfile.ZipFile(wheel.removeprefix("emfs:")).extractall("/installed")
    sys.path.insert(0, "/installed")

piplite = sys.modules["piplite"] = types.ModuleType("piplite")
piplite.install = install
os.chdir("/drive")

from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

class Shown(DisplayPublisher):
    def publish(self, data, metadata=None, **more):
        pages.append(str(data.get("text/html", "")))

settings = Config()
settings.HistoryManager.enabled = False
shell = InteractiveShell.instance(display_pub_class=Shown, config=settings)
found = {}
for path in sorted(glob("*.ipynb")):
    pages, errors = [], []
    for cell in json.load(open(path))["cells"]:
        if cell["cell_type"] == "code":
            code = shell.transform_cell("".join(cell["source"]))
            ran = await shell.run_cell_async(code, store_history=True, transformed_cell=code)
            error = ran.error_before_exec or ran.error_in_exec
            errors += [f"{cell['id']}: {type(error).__name__}: {error}"] if error else []
    found[path] = {"errors": errors, "pages": len(pages), "pictures": sum("<svg" in page for page in pages)}
json.dumps(found)
`);
console.log(found);
