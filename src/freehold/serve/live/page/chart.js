// A chart over time that can be read with a pointer, with the keyboard, and as a table.

import { element, setText, shape } from "./dom.js";
import { clock, duration, shortened } from "./format.js";
import { HEIGHT, WIDTH, areaPath, dotPath, linePath, nearest, placesOf, roundUp } from "./scale.js";

const MAX_ROWS = 20; // of the table
const LEAST_SPAN_S = 60;
const MAX_GAP_S = 20; // between values that are connected; of long spans, the time of three points
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

/**
 * Lines, or areas one on the other.
 *
 * `series` holds `{name, of}`, where `of` makes a point's value out of a function that tells a column's value there.
 * `format` writes values. `max` fixes the scale; without it the scale fits the values, and reaches at least to `least`.
 */
export class Chart {
  constructor({ id, title, series, format, isStacked = false, max = null, least = 0 }) {
    Object.assign(this, { title, series, format, isStacked, max, least });
    this.points = { at: [], values: series.map(() => []) };
    this.cursorAt = null; // the time that is read; null: the newest
    this.marks = series.map((_, index) => shape("path", { class: `${isStacked ? "area" : "line"} series-${index + 1}` }));
    this.dots = series.map((_, index) => shape("path", { class: `dots series-${index + 1}` }));
    const grid = [0.25, 0.5, 0.75].map((share) => shape("path", { class: "grid", d: `M0 ${HEIGHT * share}H${WIDTH}` }));
    const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...grid, ...this.marks, ...this.dots);
    this.cursor = element("div", { class: "cursor", hidden: true });
    this.empty = element("p", { class: "no-data quiet" }, "Nothing measured yet");
    this.plot = element("div", { class: "plot", role: "slider", tabindex: "0", "aria-label": title }, drawing, this.cursor, this.empty);
    this.scale = [1, 0.5, 0].map(() => element("span"));
    this.times = [element("span"), element("span")];
    this.readAt = element("span", { class: "read-at quiet" });
    this.values = series.map(() => element("b"));
    const legend = series.map(({ name }, index) =>
      element("li", {}, swatch(index, isStacked), `${name} `, this.values[index]),
    );
    this.table = element("table", { class: "plain" });
    this.details = element("details", { class: "as-table" }, element("summary", {}, "Table"), element("div", { class: "scrolls" }, this.table));
    this.details.addEventListener("toggle", () => this.showTable());
    this.node = element(
      "figure",
      { class: "chart", id: `chart-${id}` },
      element("figcaption", {}, element("h3", {}, title), this.readAt),
      element("ul", { class: "legend" }, ...legend),
      element("div", { class: "frame" }, element("div", { class: "scale", "aria-hidden": "true" }, ...this.scale), this.plot),
      element("div", { class: "times quiet", "aria-hidden": "true" }, ...this.times),
      this.details,
    );
    this.listen();
  }

  /** Show points of the last `maxSpanS` seconds, as `Store` keeps them; of less while there are fewer. */
  update({ at, columns }, maxSpanS) {
    const endS = at.at(-1) ?? Date.now() / 1000;
    const spanS = Math.min(maxSpanS, Math.max(LEAST_SPAN_S, endS - (at[0] ?? endS)));
    const begin = at.findIndex((time) => time >= endS - spanS);
    const shown = begin === -1 ? [] : at.slice(begin);
    const valueAt = (index) => (column) => columns[column]?.[begin + index] ?? null;
    this.points = {
      at: shown,
      values: this.series.map(({ of }) => shown.map((_, index) => of(valueAt(index)))),
    };
    this.span = { beginS: endS - spanS, endS };
    this.draw();
    this.read();
    if (this.details.open) this.showTable();
  }

  draw() {
    const { at, values } = this.points;
    const { beginS, endS } = this.span;
    const xs = placesOf(at, beginS, endS);
    const sums = this.isStacked ? stacked(values) : values;
    const top = this.max ?? roundUp(Math.max(0, ...sums.flat()), this.least);
    const maxGap = (Math.max(MAX_GAP_S, (endS - beginS) / 80) / (endS - beginS)) * WIDTH;
    this.marks.forEach((mark, index) => {
      const lower = index === 0 ? at.map(() => 0) : sums[index - 1];
      const path = this.isStacked ? areaPath(xs, lower, sums[index], top, maxGap) : linePath(xs, values[index], top, maxGap);
      mark.setAttribute("d", path);
      if (!this.isStacked) this.dots[index].setAttribute("d", dotPath(xs, values[index], top, maxGap));
    });
    [1, 0.5, 0].forEach((share, index) => setText(this.scale[index], shortened(this.format(top * share))));
    setText(this.times[0], `${duration(Math.round(endS - beginS)).replace(/ 0 (s|min)$/, "")} ago`);
    setText(this.times[1], "now");
    this.empty.hidden = values.some((column) => column.some((value) => value !== null));
  }

  /** Tell the values at the cursor, or else the newest of each series. */
  read() {
    const { at, values } = this.points;
    const isNewest = this.cursorAt === null || at.length === 0;
    const index = isNewest ? at.length - 1 : nearest(at, this.cursorAt);
    const time = at[index];
    const read = values.map((column) => this.format(isNewest ? column.findLast((value) => value !== null) : column[index]));
    const when = isNewest ? "newest" : clock(time);
    this.cursor.hidden = isNewest;
    setText(this.readAt, when);
    read.forEach((text, which) => setText(this.values[which], text));
    const told = this.series.map(({ name }, which) => `${name} ${read[which]}`);
    this.plot.setAttribute("aria-valuemin", "0");
    this.plot.setAttribute("aria-valuemax", String(Math.max(0, at.length - 1)));
    this.plot.setAttribute("aria-valuenow", String(Math.max(0, index)));
    this.plot.setAttribute("aria-valuetext", time === undefined ? "nothing measured yet" : `${when}: ${told.join(", ")}`);
    if (time !== undefined) {
      const { beginS, endS } = this.span;
      this.cursor.style.setProperty("left", `${((time - beginS) / (endS - beginS)) * 100}%`);
    }
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      this.moveTo(this.span.beginS + share * (this.span.endS - this.span.beginS));
    });
    this.plot.addEventListener("pointerleave", () => this.moveTo(null));
    this.plot.addEventListener("blur", () => this.moveTo(null));
    this.plot.addEventListener("keydown", (event) => {
      const { at } = this.points;
      if (at.length === 0) return;
      const from = this.cursorAt === null ? at.length - 1 : nearest(at, this.cursorAt);
      const to = event.key === "Home" ? 0 : event.key === "End" ? at.length - 1 : from + STEPS[event.key];
      if (event.key === "Escape") this.moveTo(null);
      else if (Number.isNaN(to)) return;
      else this.moveTo(at[Math.min(at.length - 1, Math.max(0, to))]);
      event.preventDefault();
    });
  }

  moveTo(time) {
    this.cursorAt = time;
    if (this.span !== undefined) this.read();
  }

  /** The newest points, evenly thinned out. */
  showTable() {
    const { at, values } = this.points;
    const every = Math.max(1, Math.ceil(at.length / MAX_ROWS));
    const indices = at.map((_, index) => index).reverse().filter((_, place) => place % every === 0);
    const head = ["Time", ...this.series.map(({ name }) => name)].map((name) => element("th", { scope: "col" }, name));
    const rows = indices.map((index) =>
      element("tr", {}, element("th", { scope: "row" }, clock(at[index])), ...values.map((column) => element("td", {}, this.format(column[index])))),
    );
    this.table.replaceChildren(
      element("caption", { class: "for-readers" }, this.title),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...rows),
    );
  }
}

/** The sample of a series in a legend: its line or its area. */
function swatch(index, isStacked) {
  const mark = isStacked
    ? shape("rect", { class: `area series-${index + 1}`, width: "18", height: "10" })
    : shape("path", { class: `line series-${index + 1}`, d: "M0 5H18" });
  return shape("svg", { class: "swatch", viewBox: "0 0 18 10", "aria-hidden": "true" }, mark);
}

/** Sums of each series and all before it. */
function stacked(values) {
  const sums = [];
  for (const column of values) {
    const below = sums.at(-1);
    sums.push(column.map((value, index) => (value === null ? null : value + (below?.[index] ?? 0))));
  }
  return sums;
}
