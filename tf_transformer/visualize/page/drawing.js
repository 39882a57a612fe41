// Elements and colors.

function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children); // strings become text, never markup
  return element;
}

// [red, green, blue] of an element whose color is that of the theme.
function rgb(id) {
  return getComputedStyle(document.getElementById(id)).color.match(/[\d.]+/g).slice(0, 3).map(Number);
}

// A number in [0, 1] as the share of the ink: the square root keeps small weights visible.
const shade = (share) => Math.sqrt(share);

// Each weight of a byte as a pixel in the color of the ink; the bytes of a pixel are in this order.
function pixels([red, green, blue]) {
  return Uint32Array.from({ length: 256 }, (_, value) => {
    const bytes = Uint8ClampedArray.of(red, green, blue, 255 * shade(value / 255));
    return new Uint32Array(bytes.buffer)[0];
  });
}

function drawHead(canvas, weights, palette) {
  canvas.width = stack().keys.length;
  canvas.height = stack().queries.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  new Uint32Array(image.data.buffer).set(Uint32Array.from(weights, (value) => palette[value]));
  context.putImageData(image, 0, 0);
}

// A strip of signed numbers: blue is positive, orange negative, `most` is full color.
function strip(values, most, label) {
  const canvas = el("canvas", { width: values.length, height: 1, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(values.length, 1);
  const colors = [rgb("ink"), rgb("minus")];
  values.forEach((value, i) => {
    const share = Math.min(1, Math.abs(value) / (most || 1));
    image.data.set([...colors[value < 0 ? 1 : 0], 255 * shade(share)], 4 * i);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}
