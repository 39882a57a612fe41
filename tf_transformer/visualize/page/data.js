// The arrays of the page. T queries (rows), S keys (columns), N heads, W head width.

const PAGE = JSON.parse(document.getElementById("data").textContent);

const state = {
  lang: PAGE.lang, view: "overview", stack: 0, layer: 0, head: 0, token: 0, threshold: 0.05, mean: false, shortcuts: true,
};

const stack = () => PAGE.stacks[state.stack];

function bytes(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

// Decoded at the first use: a large page opens before all of its arrays are needed.
function decoded(layer, name) {
  const cache = (layer.cache ??= {});
  return (cache[name] ??= name === "weights" ? bytes(layer.weights) : new Int16Array(bytes(layer[name]).buffer));
}

// The weights of one head, 0 to 255, T rows of S.
function headWeights(n = state.layer, head = state.head) {
  const size = stack().queries.length * stack().keys.length;
  return decoded(stack().layers[n], "weights").subarray(head * size, (head + 1) * size);
}

const row = (weights, t) => weights.subarray(t * stack().keys.length, (t + 1) * stack().keys.length);
const column = (weights, s) => stack().queries.map((_, t) => weights[t * stack().keys.length + s]);

// One row in a layer; NaN where the layer lacks the head.
function rowOfLayer(n, token, head, mean) {
  const heads = stack().layers[n].heads;
  if (!mean && head >= heads) return stack().keys.map(() => NaN);
  const chosen = mean ? [...Array(heads).keys()] : [head];
  const rows = chosen.map((one) => row(headWeights(n, one), token));
  return stack().keys.map((_, s) => rows.reduce((sum, one) => sum + one[s], 0) / rows.length / 255);
}

// The query vector, or a key vector, of one token.
function vector(name, token) {
  const layer = stack().layers[state.layer];
  const length = stack()[name].length;
  const start = (state.head * length + token) * layer.width;
  const scale = layer[`${name}_scale`][state.head];
  return Array.from(decoded(layer, name).subarray(start, start + layer.width), (value) => value * scale);
}

// A byte of 0 stands for less than half of 1/255.
const percent = (share) => (share ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "< 0.2 %");

function strongest(values, labels, count = 3) {
  const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, count);
  return order.filter((i) => values[i] > 0).map((i) => `${labels[i]} ${percent(values[i] / 255)}`).join(", ");
}

// In words, what a token attends to, or what attends to it.
function sentence(side, index) {
  const weights = headWeights();
  if (side === "queries") return text().most(stack().queries[index], strongest(row(weights, index), stack().keys));
  return text().least(stack().keys[index], strongest(column(weights, index), stack().queries));
}

// The place that gets most of a head's weight on average, in words.
function pattern(n, head) {
  const weights = headWeights(n, head);
  const [T, S] = [stack().queries.length, stack().keys.length];
  const places = { first: () => 0, last: () => S - 1 };
  if (stack().kind !== "cross") Object.assign(places, { previous: (t) => t - 1, same: (t) => t, next: (t) => t + 1 });
  let best = ["", -1];
  for (const [name, place] of Object.entries(places)) {
    let sum = 0;
    for (let t = 0; t < T; t++) if (place(t) >= 0 && place(t) < S) sum += weights[t * S + place(t)];
    if (sum > best[1]) best = [name, sum];
  }
  return text().mostly(text().patterns[best[0]], percent(best[1] / 255 / T));
}
