// Sorts the rows by the column whose heading is pressed; again: the other way round.
const head = document.querySelector("thead tr"), body = document.querySelector("tbody");
const value = (row, i) => { const c = row.cells[i], n = Number(c.textContent); const stars = (c.textContent.match(/★/g) || []).length;
  return i === 0 ? c.textContent.toLowerCase() : c.textContent !== "" && !isNaN(n) ? n : stars || (c.className === "f" ? 0 : -1); };
head.querySelectorAll("button").forEach((button, i) => button.addEventListener("click", () => {
  const th = button.parentElement, up = th.getAttribute("aria-sort") === (i ? "descending" : "ascending") ? !i ? -1 : 1 : i ? -1 : 1;
  head.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
  th.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
  const rows = [...body.rows].sort((a, b) => { const x = value(a, i), y = value(b, i); return up * (x < y ? -1 : x > y ? 1 : 0); });
  body.append(...rows);
}));
