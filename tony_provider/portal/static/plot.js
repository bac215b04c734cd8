// The drawing of a chart by uPlot: its axes and lines, and its response to the pointer.
import { aroundOne } from "./series.js";
import uPlot from "./vendor/uPlot.js";

const COLOURS = 8; // in portal.css; further series are dashed
const FONT = "12px system-ui, sans-serif";
// uPlot's rules for ticks at times: distance in seconds, text, and the text to add below if the year, month, day, hour,
// minute or second differs from that of the tick before.
const TIMES = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
];
const UTC = (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC");

// The line of the series at an index: the CSS variable of its colour, and whether it is dashed.
export const lineOf = (at) => ({ variable: `--line-${(at % COLOURS) + 1}`, dashed: at >= COLOURS });

// Format an x as a phrase.
export const phrase = (x) => x.describe ?? (x.time ? (seconds) => new Date(seconds * 1000).toLocaleString() : (number) => `${x.label} ${x.write(number)}`);

// Return uPlot's options. `current`: a React reference to the current {all, onPick}.
export function options({ element, x, y, points, height, current, pickable }) {
  const { all } = current.current;
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const grid = { stroke: colour("--grid"), width: 1 };
  const axis = { stroke: colour("--soft"), grid, ticks: grid, font: FONT };
  const few = all.every((each) => each.ys.filter((value) => value !== null).length < 40);
  const lines = all.map((each, at) => {
    const { variable, dashed } = lineOf(at);
    const stroke = colour(variable);
    return { label: each.label, stroke, width: 1.8, dash: dashed ? [6, 4] : undefined, spanGaps: false, points: { show: points || few, size: points ? 8 : 4, fill: stroke } };
  });
  const steps = (scale) => (scale.steps ? { incrs: scale.steps } : {});
  const texts = (scale) => (_, ticks) => scale.ticks(ticks);
  return {
    width: element.clientWidth,
    height,
    ...(x.utc ? { tzDate: UTC } : {}),
    legend: { show: false },
    cursor: { points: { size: 8 }, focus: { prox: 24 }, drag: pickable ? { x: false, y: false, click: () => {} } : { x: true, y: false } },
    focus: { alpha: 0.35 },
    scales: { x: { time: Boolean(x.time), range: (plot, low, high) => aroundOne(plot.data[0], x) ?? [low, high] }, y: { range: padded } },
    axes: [
      { ...axis, label: x.label, labelSize: 18, labelFont: FONT, labelGap: 2, size: x.time ? 48 : 32, space: 90, values: x.time ? TIMES : texts(x), ...(x.time ? {} : steps(x)) },
      { ...axis, size: widest, values: texts(y), ...steps(y) },
    ],
    series: [{}, ...lines],
    hooks: {
      ready: [(plot) => listen(plot, current)],
      setCursor: [(plot) => showTip(plot, current.current.all, x, y)],
      draw: [(plot) => paint(plot, current.current.all, colour)],
    },
  };
}

// Draw the points that have their own colour.
function paint(plot, all, colour) {
  if (all.length !== 1 || !all[0].colours) return;
  all[0].colours.forEach((name, at) => {
    if (!name || typeof all[0].ys[at] !== "number") return;
    const [left, top] = [plot.valToPos(all[0].xs[at], "x", true), plot.valToPos(all[0].ys[at], "y", true)];
    plot.ctx.beginPath();
    plot.ctx.arc(left, top, 5 * devicePixelRatio, 0, 2 * Math.PI);
    plot.ctx.fillStyle = colour(name);
    plot.ctx.fill();
  });
}

function padded(_, low, high) {
  if (low === null) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

// Width of the vertical axis in pixels, so that the longest tick text fits.
function widest(_, texts) {
  const longest = Math.max(0, ...(texts ?? []).map((each) => String(each).length));
  return Math.min(110, Math.max(40, 18 + 6.5 * longest));
}

// Show the values of the point nearest to the pointer.
function showTip(plot, all, x, y) {
  plot.tip ??= plot.over.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  const { left, idx } = plot.cursor;
  const at = idx === null || left < 0 ? null : nearest(plot);
  plot.tip.hidden = at === null;
  if (at === null) return;
  const value = plot.data[at.series][at.point];
  plot.tip.textContent = `${all.length > 1 ? `${all[at.series - 1].label}: ` : ""}${y.write(value)} · ${phrase(x)(plot.data[0][at.point])}`;
  const right = left > plot.over.clientWidth / 2;
  Object.assign(plot.tip.style, { top: "2px" }, right ? { right: "4px", left: "auto" } : { left: "4px", right: "auto" });
}

// Return {series, point}, indices in plot.data, of the point nearest to the pointer, or null if no point is near.
function nearest(plot) {
  const { left, top, idx } = plot.cursor;
  let best = null;
  for (let number = 1; number < plot.data.length; number += 1) {
    const ys = plot.data[number];
    for (const point of around(ys, idx)) {
      const across = plot.valToPos(plot.data[0][point], "x") - left;
      const along = plot.valToPos(ys[point], "y") - top;
      const far = Math.hypot(across, along);
      if (!best || far < best.far) best = { series: number, point, far };
    }
  }
  return best;
}

// The nearest points of a series on both sides. Joined series do not have a point at each x.
function around(ys, idx) {
  const found = [];
  for (let at = idx; at >= 0; at -= 1) if (typeof ys[at] === "number") { found.push(at); break; }
  for (let at = idx + 1; at < ys.length; at += 1) if (typeof ys[at] === "number") { found.push(at); break; }
  return found;
}

function listen(plot, current) {
  plot.over.addEventListener("click", () => {
    const { onPick } = current.current;
    const at = onPick && nearest(plot);
    if (at && at.far < 30) onPick(at.series - 1, plot.data[0][at.point]);
  });
}
