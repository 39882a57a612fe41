// One token in one head: its query, each key, their products, scores and weights.

function token() {
  const query = vector("queries", state.token);
  const weights = row(headWeights(), state.token);
  const keys = stack().keys.map((_, s) => vector("keys", s));
  const products = keys.map((key) => key.map((value, i) => value * query[i]));
  const [mostQuery, mostKey, mostProduct] = [[query], keys, products].map((rows) =>
    rows.reduce((most, values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), most), 0),
  );
  const titles = ["", text().vector, text().product, text().score, text().weight];
  const name = `${text().query}: ${stack().queries[state.token]}`;
  const body = el(
    "tbody",
    {},
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, strip(query, mostQuery, text().query))),
  );
  products.forEach((product, s) => {
    const score = product.reduce((sum, value) => sum + value, 0) / Math.sqrt(query.length);
    const at = largest(product.map(Math.abs));
    const canvas = strip(product, mostProduct, text().largest(at + 1, product[at].toFixed(2)));
    canvas.onmousemove = (event) => {
      const i = Math.min(query.length - 1, Math.floor((query.length * event.offsetX) / canvas.clientWidth));
      const numbers = [query[i], keys[s][i], product[i]].map((value) => value.toFixed(2));
      canvas.title = text().dimension(i + 1, ...numbers);
    };
    const weight = el("td", { className: "shade" }, percent(weights[s] / 255));
    weight.style.setProperty("--w", shade(weights[s] / 255));
    body.append(
      el(
        "tr",
        {},
        el("th", { scope: "row", title: stack().keys[s] }, stack().keys[s]),
        el("td", {}, strip(keys[s], mostKey, text().key)),
        el("td", {}, canvas),
        el("td", {}, score.toFixed(2)),
        weight,
      ),
    );
  });
  say(sentence("queries", state.token));
  return [tokenChoice(), table(titles, body)];
}

function table(titles, body) {
  const heads = titles.map((title) => el("th", { scope: "col" }, title));
  return el("div", { className: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
}

// The choice of the token that attends.
function tokenChoice() {
  const choice = el("select", { id: "token" });
  stack().queries.forEach((label, i) => choice.append(el("option", { value: i }, `${i + 1}  ${label}`)));
  choice.value = state.token;
  choice.onchange = () => change({ token: Number(choice.value) });
  return el("label", {}, `${text().token} `, choice);
}
