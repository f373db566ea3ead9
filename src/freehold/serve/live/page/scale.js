// From values to places in a plot of WIDTH by HEIGHT units.

export const WIDTH = 600;
export const HEIGHT = 140;

/** The least round number that is no less than `value` and `least`, and whose half is round too. */
export function roundUp(value, least) {
  const wanted = Math.max(value, least);
  if (wanted <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 1.2, 1.6, 2, 4, 6, 8, 10].map((step) => step * power).find((candidate) => candidate >= wanted * 0.9999);
}

/** Places of times between `beginS` and `endS`. */
export function placesOf(at, beginS, endS) {
  return at.map((time) => ((time - beginS) / (endS - beginS)) * WIDTH);
}

/** The path of a line through what was measured. Values further apart than `maxGap` aren't connected. */
export function linePath(xs, values, max, maxGap) {
  return runs(xs, values, maxGap)
    .map((run) => "M" + run.map((index) => place(xs[index], values[index], max)).join("L"))
    .join("");
}

/** The path of dots, one for each value that is connected with no other. */
export function dotPath(xs, values, max, maxGap) {
  return runs(xs, values, maxGap)
    .filter((run) => run.length === 1)
    .map(([index]) => `M${place(xs[index], values[index], max)}h0`)
    .join("");
}

/** The path of the area between two lines, where the upper one was measured. */
export function areaPath(xs, lower, upper, max, maxGap) {
  return runs(xs, upper, maxGap)
    .map((run) => {
      const above = run.map((index) => place(xs[index], upper[index], max));
      const below = run.map((index) => place(xs[index], lower[index], max)).reverse();
      return `M${above.join("L")}L${below.join("L")}Z`;
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

/** Indices of values that aren't null, in runs that no gap longer than `maxGap` divides. */
function runs(xs, values, maxGap) {
  const found = [];
  values.forEach((value, index) => {
    if (value === null) return;
    const last = found.at(-1)?.at(-1);
    if (last !== undefined && xs[index] - xs[last] <= maxGap) found.at(-1).push(index);
    else found.push([index]);
  });
  return found;
}

function place(x, value, max) {
  return `${x.toFixed(1)} ${(HEIGHT - (Math.min(value, max) / max) * HEIGHT).toFixed(1)}`;
}
