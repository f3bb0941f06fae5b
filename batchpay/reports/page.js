"use strict";
(() => {
  // A folded list is printed whole.
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });

  const table = document.getElementById("attention");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const find = document.getElementById("find");
  const state = document.getElementById("state");
  const shown = document.getElementById("shown");

  function filter() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = texts.get(row);
      const fits = (!state.value || row.dataset.kind === state.value) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      if (fits) count += 1;
    }
    shown.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  }

  function keyOf(row, column, numeric) {
    const cell = row.cells[column];
    const key = cell.dataset.key ?? cell.textContent.trim();
    return numeric ? Number(key === "" ? -1 : key) : key.toLowerCase();
  }

  function sortBy(header, column) {
    const descending = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const numeric = "numeric" in header.dataset;
    const keyed = rows.map((row, index) => ({ row, index, key: keyOf(row, column, numeric) }));
    keyed.sort((a, b) => {
      const order = a.key < b.key ? -1 : a.key > b.key ? 1 : a.index - b.index;
      return descending ? -order : order;
    });
    body.append(...keyed.map((entry) => entry.row));
  }

  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sortBy(header, column));
    header.replaceChildren(button);
  });
  find.addEventListener("input", filter);
  state.addEventListener("change", filter);
  document.querySelector(".controls").hidden = false;
  filter();
})();
