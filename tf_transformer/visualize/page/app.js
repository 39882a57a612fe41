// The bar above the views, the keys, and what a change of the state redraws.

const VIEWS = { overview, head, token, layers };
const ABOVE = { head: "overview", token: "head", layers: "overview" };

function say(sentence) {
  document.getElementById("said").textContent = sentence;
}

function change(changes) {
  Object.assign(state, changes);
  const sizes = { stack: PAGE.stacks.length, layer: stack().layers.length, token: stack().queries.length };
  for (const [name, size] of Object.entries(sizes)) state[name] = Math.min(state[name], size - 1);
  // The view of all layers takes any head: not all layers need to have it.
  const heads = stack().layers.map((layer) => layer.heads);
  state.head = Math.min(state.head, (state.view === "layers" ? Math.max(...heads) : heads[state.layer]) - 1);
  const before = document.activeElement;
  const inside = before === document.body || document.getElementById("view").contains(before);
  render();
  // The same control, if there still is one; else the heading of the view, not the top of the page.
  const again = before.id && document.getElementById(before.id);
  if (again) again.focus({ preventScroll: true });
  else if (inside) document.querySelector("h2").focus();
}

function render() {
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  bar();
  const one = text().headName(state.layer + 1, state.head + 1);
  const names = { overview: "", layers: `: ${text().head} ${state.head + 1}` };
  document.getElementById("view").replaceChildren(
    el("h2", { tabIndex: -1 }, `${text().views[state.view]}${names[state.view] ?? `: ${one}`}`),
    el("p", {}, text().about[state.view], stack().kind === "cross" ? ` ${text().crossRows}` : ""),
    ...VIEWS[state.view](),
  );
}

function bar() {
  const pressed = (id, label, on, onclick) =>
    el("button", { id, type: "button", onclick, "aria-pressed": String(on) }, label);
  const views = Object.keys(VIEWS).map((view) =>
    pressed(`view-${view}`, text().views[view], view === state.view, () => change({ view })),
  );
  const stacks = PAGE.stacks.map(({ kind }, n) =>
    pressed(`stack-${kind}`, text().stacks[kind], n === state.stack, () => change({ stack: n })),
  );
  const sizes = { layer: stack().layers.length, head: Math.max(...stack().layers.map((layer) => layer.heads)) };
  const choices = Object.entries(sizes).map(([name, size]) => {
    const choice = el("select", { id: name });
    for (let n = 0; n < size; n++) choice.append(el("option", { value: n }, String(n + 1)));
    choice.value = state[name];
    choice.onchange = () => change({ [name]: Number(choice.value) });
    return el("label", {}, `${text()[name]} `, choice);
  });
  const button = (id, label, onclick) => el("button", { id, type: "button", onclick }, label);
  document.getElementById("bar").replaceChildren(
    el("div", { role: "group" }, ...views),
    el("div", { role: "group" }, ...stacks),
    el("div", {}, ...choices),
    el(
      "div",
      {},
      button("theme", text().theme, turnTheme),
      button("language", text().other, () => change({ lang: state.lang === "en" ? "zh" : "en" })),
      button("keys", text().help, help),
    ),
  );
}

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : DARK.matches;
  root.dataset.theme = dark ? "light" : "dark";
  change({});
}

function help() {
  const dialog = document.getElementById("help");
  const list = el("dl");
  for (const [keys, what] of text().keys) list.append(el("dt", {}, el("kbd", {}, keys)), el("dd", {}, what));
  const box = el("input", { type: "checkbox", checked: state.shortcuts });
  box.onchange = () => (state.shortcuts = box.checked);
  const close = el("button", { type: "button", onclick: () => dialog.close() }, text().close);
  dialog.setAttribute("aria-label", text().help);
  dialog.replaceChildren(list, el("p", {}, el("label", {}, box, " ", text().shortcuts)), close);
  dialog.showModal();
}

const turned = (value, by, size) => (value + by + size) % size;

function shortcut(event) {
  const step = event.shiftKey ? -1 : 1;
  const sizes = {
    stack: PAGE.stacks.length,
    layer: stack().layers.length,
    head: stack().layers[state.layer].heads,
    token: stack().queries.length,
  };
  const [name, size] = Object.entries(sizes).find(([one]) => one[0] === event.key.toLowerCase()) ?? [];
  const view = Object.keys(VIEWS)[event.key - 1];
  if (name) change({ [name]: turned(state[name], step, size) });
  else if (view) change({ view });
  else if (event.key === "d") turnTheme();
  else if (event.key === "?") help();
}

document.addEventListener("keydown", (event) => {
  if (document.getElementById("help").open || event.ctrlKey || event.altKey || event.metaKey) return;
  const first = document.querySelector('#view [tabindex="0"]');
  if (event.key === "ArrowDown" && event.target.tagName === "H2" && first) {
    first.focus();
    event.preventDefault();
  } else if (event.key === "Escape" && ABOVE[state.view]) change({ view: ABOVE[state.view] });
  else if (state.shortcuts && event.key.length === 1 && event.target.tagName !== "SELECT") shortcut(event);
});

const DARK = window.matchMedia("(prefers-color-scheme: dark)");
DARK.addEventListener("change", () => change({}));
window.addEventListener("resize", () => state.view === "head" && change({}));
render();
