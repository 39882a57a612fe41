// A grid with a small picture of each head.

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function overview() {
  const most = Math.max(...stack().layers.map((layer) => layer.heads));
  const palette = pixels(rgb("ink"));
  const grid = el("div", { className: "grid", role: "grid", "aria-label": text().views.overview });
  grid.style.gridTemplateColumns = `4.5rem repeat(${most}, minmax(44px, 9rem))`;
  const titles = el("div", { role: "row" }, el("span", { role: "columnheader" }));
  for (let h = 0; h < most; h++) titles.append(el("span", { role: "columnheader" }, `${text().head} ${h + 1}`));
  grid.append(titles);
  const cells = stack().layers.map((layer, n) =>
    Array.from({ length: layer.heads }, (_, h) => {
      const cell = headCell(n, h, palette);
      cell.onkeydown = (event) => {
        const [down, right] = ARROWS[event.key] ?? [0, 0];
        if (event.key === "Enter" || event.key === " ") cell.click();
        else if (down || right) move(n + down, h + right);
        else return;
        event.preventDefault();
        event.stopPropagation();
      };
      return cell;
    }),
  );
  // A layer may have fewer heads: then the last one is next to where the focus was.
  function move(n, h) {
    const row = cells[Math.min(cells.length - 1, Math.max(0, n))];
    const cell = row[Math.min(row.length - 1, Math.max(0, h))];
    choose(cells[state.layer][state.head], false);
    [state.layer, state.head] = [cells.indexOf(row), row.indexOf(cell)];
    choose(cell, true);
    cell.focus();
    bar();
  }
  cells.forEach((row, n) => {
    const title = el("span", { role: "rowheader" }, `${text().layer} ${n + 1}`);
    const empty = Array.from({ length: most - row.length }, () => el("span", { role: "presentation" }));
    grid.append(el("div", { role: "row" }, title, ...row, ...empty));
  });
  return [grid];
}

function headCell(n, h, palette) {
  const name = `${text().headName(n + 1, h + 1)}: ${pattern(n, h)}`;
  const canvas = el("canvas");
  drawHead(canvas, headWeights(n, h), palette);
  const cell = el("div", { role: "gridcell", title: name, "aria-label": name }, canvas);
  choose(cell, n === state.layer && h === state.head);
  cell.onclick = () => change({ view: "head", layer: n, head: h });
  return cell;
}

function choose(cell, chosen) {
  cell.tabIndex = chosen ? 0 : -1; // one stop for Tab; arrow keys move within the grid
  cell.setAttribute("aria-selected", String(chosen));
}
