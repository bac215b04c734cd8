// Series of points for a chart, in ascending order and with gaps where a value is not a finite number.
import { drawable, numeric } from "./format.js";

// Return {label, xs, ys, gaps, again, back}. `ys` has null for NaN and infinity. If an x occurs several times, such as a
// step that is repeated after a restart, the last value counts. `gaps` is the number of values that are not finite,
// `again` the number of repeated points, and `back` how often x decreased.
export function series(label, rawXs, rawYs) {
  const points = [];
  let back = 0;
  let newest = -Infinity;
  for (let at = 0; at < Math.min(rawXs.length, rawYs.length); at += 1) {
    const x = numeric(rawXs[at]);
    if (!Number.isFinite(x) || rawYs[at] === null || rawYs[at] === undefined) continue;
    if (x < newest) back += 1;
    newest = x;
    points.push([x, drawable(rawYs[at]), at]);
  }
  points.sort((one, other) => one[0] - other[0] || one[2] - other[2]);
  const kept = points.filter(([x], at) => at === points.length - 1 || points[at + 1][0] !== x);
  const ys = kept.map(([, y]) => y);
  const gaps = ys.filter((y) => y === null).length;
  return { label, xs: kept.map(([x]) => x), ys, gaps, again: points.length - kept.length, back };
}

// Return the range of x for a single point: some room on both sides, half a day for a chart of days. Return null for
// more points. Without this, uPlot would show several years.
export function aroundOne(xs, { time, utc }) {
  const room = time ? (utc ? 43200 : 30) : 1;
  return xs.length === 1 ? [xs[0] - room, xs[0] + room] : null;
}

const NOTABLE = 0.05; // share of repeated points that is worth a remark: many programs report a few steps twice

// Return sentences about the data that the drawing does not show. `time`: whether x is a time instead of a step.
export function remarks(all, time) {
  const sum = (name) => all.reduce((total, each) => total + each[name], 0);
  const times = (number) => (number === 1 ? "once" : `${number.toLocaleString("en")} times`);
  const many = (number, one, more) => (number === 1 ? `One ${one}` : `${number.toLocaleString("en")} ${more}`);
  const [gaps, again, back] = ["gaps", "again", "back"].map(sum);
  const found = [];
  if (gaps) found.push(`${many(gaps, "value is", "values are")} NaN or infinite and shown as ${gaps === 1 ? "a gap" : "gaps"}`);
  if (back) found.push(`${time ? "The clock" : "The steps"} went back ${times(back)}: points are drawn in the order of their ${time ? "times" : "steps"}`);
  if (again > NOTABLE * all.reduce((total, each) => total + each.xs.length, 0)) found.push(`${many(again, "point has", "points have")} the same ${time ? "time" : "step"} as another point: the later point is drawn`);
  return found;
}

// Describe a series for screen readers: its first, last, lowest and highest point.
export function inWords(each, writeX, writeY) {
  const finite = each.ys.map((y, at) => [each.xs[at], y]).filter(([, y]) => y !== null);
  if (!finite.length) return `${each.label}: no finite value`;
  const [first, last] = [finite[0], finite[finite.length - 1]];
  let [low, high] = [first, first];
  for (const point of finite) {
    if (point[1] < low[1]) low = point;
    if (point[1] > high[1]) high = point;
  }
  const at = ([x, y]) => `${writeY(y)} at ${writeX(x)}`;
  return `${each.label}: from ${at(first)} to ${at(last)}, lowest ${at(low)}, highest ${at(high)}`;
}
