// One head: tokens in two columns, and lines between them.

const ROW = 24; // pixels, as in the style
const LEVELS = 16; // lines of about the same weight are drawn in one stroke

function head() {
  const weights = headWeights();
  const canvas = el("canvas", { "aria-hidden": "true" });
  const sides = {};
  const buttons = { queries: [], keys: [] };
  let shown = null; // [side, index] of the token whose lines are shown alone

  function show(side, index) {
    shown = side && [side, index];
    for (const [name, list] of Object.entries(buttons)) {
      const values = !side || name === side ? null : side === "queries" ? row(weights, index) : column(weights, index);
      list.forEach((button, i) => {
        button.style.setProperty("--w", values ? shade(values[i] / 255) : 0);
        button.lastChild.textContent = values && values[i] / 255 >= state.threshold ? percent(values[i] / 255) : "";
        button.classList.toggle("from", name === side && i === index);
      });
    }
    drawLines(canvas, weights, shown);
    if (side) say(sentence(side, index));
  }

  for (const name of ["queries", "keys"]) {
    const labels = stack()[name];
    sides[name] = el("ul", { "aria-label": name === "queries" ? text().from : text().to });
    labels.forEach((label, i) => {
      const button = el(
        "button",
        { type: "button", title: label, tabIndex: i === (name === "queries" ? state.token : 0) ? 0 : -1 },
        el("span", {}, label),
        el("small"),
      );
      button.setAttribute("aria-label", text().place(label, i + 1, labels.length));
      button.onfocus = () => {
        buttons[name].forEach((other) => (other.tabIndex = other === button ? 0 : -1));
        show(name, i);
      };
      button.onmouseenter = () => show(name, i);
      button.onmouseleave = () => restore();
      if (name === "queries") button.onclick = () => change({ view: "token", token: i });
      button.onkeydown = (event) => {
        const next = neighbor(event.key, name, i);
        if (!next) return;
        event.preventDefault();
        event.stopPropagation();
        next.focus();
      };
      buttons[name].push(button);
      sides[name].append(el("li", {}, button));
    });
  }

  // Up and down to the next token, across to the one with the largest weight.
  function neighbor(key, side, i) {
    if (key === "ArrowUp") return buttons[side][i - 1];
    if (key === "ArrowDown") return buttons[side][i + 1];
    if (key === "ArrowRight" && side === "queries") return buttons.keys[largest(row(weights, i))];
    if (key === "ArrowLeft" && side === "keys") return buttons.queries[largest(column(weights, i))];
    return undefined;
  }

  function restore() {
    for (const [side, list] of Object.entries(buttons)) {
      const focused = list.indexOf(document.activeElement);
      if (focused >= 0) return show(side, focused);
    }
    return show(null);
  }

  const slider = el("input", { type: "range", min: 0, max: 50, value: Math.round(100 * state.threshold) });
  const output = el("output", {}, `${slider.value} %`);
  slider.oninput = () => {
    state.threshold = slider.value / 100;
    output.textContent = `${slider.value} %`;
    show(...(shown ?? [null]));
  };
  requestAnimationFrame(restore); // once the canvas has its width
  return [
    el("label", {}, `${text().threshold} `, slider, " ", output),
    el("div", { className: "lines" }, sides.queries, canvas, sides.keys),
  ];
}

const largest = (values) => values.indexOf(Math.max(...values));

function drawLines(canvas, weights, shown) {
  const [T, S] = [stack().queries.length, stack().keys.length];
  const height = ROW * Math.max(T, S);
  const width = canvas.clientWidth;
  const scale = Math.min(window.devicePixelRatio, 16000 / height); // browsers limit the size
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.strokeStyle = `rgb(${rgb("ink")})`;
  const levels = Array.from({ length: LEVELS }, () => []);
  const only = (side, i) => !shown || shown[0] !== side || shown[1] === i;
  for (let t = 0; t < T; t++) {
    if (!only("queries", t)) continue;
    for (let s = 0; s < S; s++) {
      const weight = weights[t * S + s];
      if (weight && weight >= 255 * state.threshold && only("keys", s)) levels[weight >> 4].push(t, s);
    }
  }
  levels.forEach((pairs, level) => {
    const share = (level + 0.5) / LEVELS;
    context.globalAlpha = shade(share);
    context.lineWidth = 0.5 + 3.5 * share;
    context.beginPath();
    for (let i = 0; i < pairs.length; i += 2) {
      context.moveTo(0, ROW * (pairs[i] + 0.5));
      context.lineTo(width, ROW * (pairs[i + 1] + 0.5));
    }
    context.stroke();
  });
}
