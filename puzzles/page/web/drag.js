// Pointer and touch on the timetable: a cell is dragged to its place, or tapped and then its place is.

export function dragging(table) {
  let from = null; // where the pointer went down on a cell

  // The rank and the place in its row under the pointer; null elsewhere.
  function target(event) {
    for (const lane of table.grid.children) {
      const box = lane.getBoundingClientRect();
      if (event.clientY < box.top || event.clientY > box.bottom || event.clientX < box.left) continue;
      const rank = Number(lane.dataset.rank);
      const at = table.others(rank).filter((cell) => {
        const chip = table.find(cell).getBoundingClientRect();
        return chip.left + chip.width / 2 < event.clientX;
      }).length;
      return [rank, at];
    }
    return null;
  }

  function aim(event) {
    const found = table.held?.refusals && target(event);
    if (found) table.aim(...found);
    return found;
  }

  table.place.addEventListener("pointerdown", (event) => {
    const chip = event.target.closest?.("[data-cell]");
    if (!chip || event.button) return;
    from = { x: event.clientX, y: event.clientY, cell: chip.dataset.cell, moved: false };
    const inRow = table.grid.contains(chip);
    if (table.held && table.held.cell !== from.cell && inRow) { from.tapped = true; return; } // a tap on a place in a row
    if (table.held?.cell !== from.cell) from.picking = table.pick(from.cell);
    chip.setPointerCapture?.(event.pointerId);
  });
  table.place.addEventListener("pointermove", (event) => {
    if (!from) return event.pointerType === "mouse" && aim(event); // with a cell in hand, after a click on it
    if (Math.hypot(event.clientX - from.x, event.clientY - from.y) > 6) from.moved = true;
    if (from.moved) aim(event);
  });
  table.place.addEventListener("pointerup", async (event) => {
    const began = from;
    from = null;
    await began?.picking;
    if (began?.moved && !aim(event)) return table.cancel();
    if (began?.moved) {
      await table.drop();
      return table.release();
    }
    if (began && !began.tapped) return; // a tap takes it in hand; the next one says where
    if (table.held && aim(event)) await table.drop();
  });
  table.place.addEventListener("pointercancel", () => { from = null; });
  table.place.addEventListener("dblclick", (event) => {
    const chip = event.target.closest?.("[data-cell]");
    if (chip) table.last(chip.dataset.cell);
  });
}
