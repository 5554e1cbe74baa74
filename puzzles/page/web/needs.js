// What a puzzle needs that this site or this browser may lack.

// Why a puzzle is not played here, as a sentence; empty if it is. `numpy` are the site's files of it, if there are any.
export function lacking(puzzle, numpy) {
  if (!puzzle.played) return "This is not played in the browser.";
  if (puzzle.needs.includes("numpy") && !numpy) return "Numpy is needed, and this site was built without it.";
  if (puzzle.needs.includes("suspending") && !("Suspending" in WebAssembly)) {
    return "Devices wait for each other in plain calls, so the browser has to suspend Python (JavaScript Promise Integration). " +
      "This browser cannot; Chrome and Edge can, from version 137 on.";
  }
  return "";
}
