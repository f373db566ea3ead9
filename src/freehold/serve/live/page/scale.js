// From values to places in a plot of WIDTH by HEIGHT units.

export const WIDTH = 600;
export const HEIGHT = 140;

/** The least round number that is no less than `value`: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((candidate) => candidate >= value * 0.9999);
}

/** Places of times between `beginS` and `endS`. */
export function placesOf(at, beginS, endS) {
  return at.map((time) => ((time - beginS) / (endS - beginS)) * WIDTH);
}

/** The path of a line, broken where a value is null. */
export function linePath(xs, values, max) {
  let path = "";
  let isDown = false;
  xs.forEach((x, index) => {
    const value = values[index];
    if (value === null) {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${placeOf(value, max)}`;
    if (!isDown && (values[index + 1] ?? null) === null) path += "h0.1"; // so that a lone point is seen
    isDown = true;
  });
  return path;
}

/** The path of the area between two lines; null counts as nothing. */
export function areaPath(xs, lower, upper, max) {
  if (xs.length === 0) return "";
  const above = xs.map((x, index) => `${x.toFixed(1)} ${placeOf(upper[index], max)}`);
  const below = xs.map((x, index) => `${x.toFixed(1)} ${placeOf(lower[index], max)}`).reverse();
  return `M${above.join("L")}L${below.join("L")}Z`;
}

/** The index whose time is nearest. */
export function nearest(at, time) {
  let best = 0;
  at.forEach((other, index) => {
    if (Math.abs(other - time) < Math.abs(at[best] - time)) best = index;
  });
  return best;
}

function placeOf(value, max) {
  return (HEIGHT - (Math.min(value, max) / max) * HEIGHT).toFixed(1);
}
