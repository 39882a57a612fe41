// The row of one token in all layers.

function layers() {
  const rows = stack().layers.map((_, n) => rowOfLayer(n, state.token, state.head, state.mean));
  const body = el("tbody");
  stack().keys.forEach((label, s) => {
    const line = el("tr", {}, el("th", { scope: "row", title: label }, label));
    rows.forEach((weights) => {
      const cell = el("td", { className: "shade" }, Number.isNaN(weights[s]) ? "–" : percent(weights[s]));
      cell.style.setProperty("--w", shade(weights[s] || 0));
      line.append(cell);
    });
    body.append(line);
  });
  const mean = el("input", { type: "checkbox", id: "mean", checked: state.mean });
  mean.onchange = () => change({ mean: mean.checked });
  say(sentence("queries", state.token));
  const titles = [text().key, ...stack().layers.map((_, n) => `${text().layer} ${n + 1}`)];
  return [tokenChoice(), " ", el("label", {}, mean, " ", text().mean), table(titles, body)];
}
