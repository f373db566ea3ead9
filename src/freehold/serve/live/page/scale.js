// From values to places in a plot of WIDTH by HEIGHT units.

export const WIDTH = 600;
export const HEIGHT = 140;

/** The least round number that is no less than `value` and `least`, and whose half is round too. */
export function roundUp(value, least) {
  const wanted = Math.max(value, least);
  if (wanted <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((candidate) => candidate >= wanted * 0.9999);
}

/** Places of times between `beginS` and `endS`. */
export function placesOf(at, beginS, endS) {
  return at.map((time) => ((time - beginS) / (endS - beginS)) * WIDTH);
}

/** The path of a line, broken where a value is null. */
export function linePath(xs, values, max) {
  return runs(values)
    .map(([begin, end]) => "M" + places(xs, values, max, begin, end).join("L"))
    .join("");
}

/** The path of dots, one for each value that has no neighbour and so is no line. */
export function dotPath(xs, values, max) {
  return runs(values)
    .filter(([begin, end]) => end - begin === 1)
    .map(([begin, end]) => `M${places(xs, values, max, begin, end)[0]}h0`)
    .join("");
}

/** The path of the area between two lines, broken where the upper one is null. Each point stands for half a step around it. */
export function areaPath(xs, lower, upper, max) {
  const half = xs.length > 1 ? (xs[1] - xs[0]) / 2 : 1;
  return runs(upper)
    .map(([begin, end]) => {
      const wide = [xs[begin] - half, ...xs.slice(begin, end), xs[end - 1] + half];
      const edge = (values) => {
        const inner = values.slice(begin, end);
        return places(wide, [inner[0], ...inner, inner.at(-1)], max, 0, wide.length);
      };
      return `M${edge(upper).join("L")}L${edge(lower).reverse().join("L")}Z`;
    })
    .join("");
}

/** The index whose time is nearest. */
export function nearest(at, time) {
  let best = 0;
  at.forEach((other, index) => {
    if (Math.abs(other - time) < Math.abs(at[best] - time)) best = index;
  });
  return best;
}

/** Where values stand without a gap: [first index, index after the last]. */
function runs(values) {
  const found = [];
  values.forEach((value, index) => {
    if (value === null) return;
    if (found.at(-1)?.[1] === index) found.at(-1)[1] = index + 1;
    else found.push([index, index + 1]);
  });
  return found;
}

function places(xs, values, max, begin, end) {
  return xs.slice(begin, end).map((x, index) => {
    const y = HEIGHT - (Math.min(values[begin + index], max) / max) * HEIGHT;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
}
