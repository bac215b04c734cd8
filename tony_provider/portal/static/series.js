// A series of points that a chart can draw: in order, with gaps where there is no number.
import { drawable, numeric } from "./format.js";

// {label, xs, ys, gaps, again, back}: xs ascend, ys have null for NaN and infinity. Where the same x came twice, as steps
// do that are trained again after a restart, the later value counts. `gaps`: how many points were no number; `again`: how
// many came a second time; `back`: how often x was smaller than the one before it.
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

// The x that are drawn where there is one point alone: room on both sides, half a day where days are drawn. Null where
// there are more. uPlot itself would draw a moment in three years.
export function aroundOne(xs, { time, utc }) {
  const room = time ? (utc ? 43200 : 30) : 1;
  return xs.length === 1 ? [xs[0] - room, xs[0] + room] : null;
}

const SEEN = 0.05; // of the points: fewer at the same step are what any program does that reports twice at one

// What a drawing does not show by itself, for people. `time`: whether x is time, and not steps.
export function remarks(all, time) {
  const sum = (name) => all.reduce((total, each) => total + each[name], 0);
  const times = (number) => (number === 1 ? "once" : `${number.toLocaleString("en")} times`);
  const many = (number, one, more) => (number === 1 ? `One ${one}` : `${number.toLocaleString("en")} ${more}`);
  const [gaps, again, back] = ["gaps", "again", "back"].map(sum);
  const said = [];
  if (gaps) said.push(`${many(gaps, "value is", "values are")} NaN or infinite and shown as ${gaps === 1 ? "a gap" : "gaps"}`);
  if (back) said.push(`${time ? "The clock" : "The steps"} went back ${times(back)}: points are drawn in the order of their ${time ? "times" : "steps"}`);
  if (again > SEEN * all.reduce((total, each) => total + each.xs.length, 0)) said.push(`${many(again, "point has", "points have")} the same ${time ? "time" : "step"} as another point: the later point is drawn`);
  return said;
}

// One line in words: where it begins, ends, and its bounds.
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
