// A chart of a few series: a drawing by uPlot, its legend, and the same as words and as a table.
import { figure, NOTHING } from "./format.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { Fold, Table } from "./parts.js";
import { aroundOne, inWords, remarks } from "./series.js";
import uPlot from "./vendor/uPlot.js";

const COLOURS = 8; // in portal.css; series beyond them are dashed
const ROWS = 60; // of the table beside a chart
const HEIGHT = 220;
const WORDS = 8; // series that are told in words
// How times of the epoch are written at the ticks, by uPlot's rules: step in seconds, text, and what is added below where
// the year, month, day, hour, minute or second is another one than at the tick before.
const TIMES = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
];
const UTC = (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC");

// `all`: what series() makes. `x`: {label, write, time}; `write` makes a text of a number, `time` says that x is seconds
// of the epoch, `utc` that they are written in UTC. `y`: {write, steps}: between which numbers ticks are. `onPick(series, point)`: a click on a point. `points`: marks on all of them.
export function Chart({ title, all, x, y = {}, onPick = null, points = false, height = HEIGHT }) {
  const write = { x: x.write ?? figure, y: y.write ?? figure };
  const theme = useTheme();
  const id = useId();
  const shown = all.filter((each) => each.xs.length);
  const said = remarks(shown, Boolean(x.time ?? x.tell));
  if (!shown.length) return html`<figure className="chart"><figcaption>${title}</figcaption><p className="soft">No values.</p></figure>`;
  return html`<figure className="chart">
    <figcaption id=${id}>${title}</figcaption>
    <${Drawing} key=${theme} ...${{ all: shown, x, y, write, onPick, points, height, title }} />
    ${shown.length > 1 && html`<${Legend} all=${shown} />`}
    ${said.map((each) => html`<p key=${each} className="soft remark">${each}.</p>`)}
    <${Fold} title="Values as a table">${() => html`<${Figures} ...${{ all: shown, x, write, title }} />`}<//>
  </figure>`;
}

// Which of Airflow's themes is on; a canvas has to be drawn anew when it changes.
function useTheme() {
  const root = document.documentElement;
  const [theme, setTheme] = useState(root.className);
  useEffect(() => {
    const observer = new MutationObserver(() => setTheme(root.className));
    observer.observe(root, { attributeFilter: ["class"] });
    return () => observer.disconnect();
  }, [root]);
  return theme;
}

function Drawing({ all, x, y, write, onPick, points, height, title }) {
  const frame = useRef(null);
  const pick = useRef(onPick);
  pick.current = onPick;
  const data = useMemo(() => joined(all), [all]);
  const words = all.slice(0, WORDS).map((each) => inWords(each, write.x, write.y)).join("; ");
  const more = all.length > WORDS ? `; and ${all.length - WORDS} more` : "";
  const labels = all.map((each) => each.label).join("\n");
  const drawn = useRef(null);
  useEffect(() => {
    const element = frame.current;
    const plot = new uPlot(options({ element, all, x, y, write, points, height, pick, onPick }), data, element);
    drawn.current = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
    // Drawn anew for other series; new values of the same ones are set below.
  }, [labels, x.label, x.time, points, height]);
  useEffect(() => drawn.current?.setData(data), [data]);
  const look = `drawing${onPick ? " pickable" : ""}`;
  return html`<div ref=${frame} className=${look} role="img" aria-label=${`Chart of ${title} over ${x.label}. ${words}${more}`}></div>`;
}

// One list of x for all series; undefined where a series has no point there, which does not break its line.
function joined(all) {
  if (all.length === 1) return [all[0].xs, all[0].ys];
  return uPlot.join(all.map((each) => [each.xs, each.ys]));
}

function options({ element, all, x, y, write, points, height, pick, onPick }) {
  const style = getComputedStyle(element);
  const ink = style.getPropertyValue("--soft").trim();
  const grid = { stroke: style.getPropertyValue("--grid").trim(), width: 1 };
  const axis = { stroke: ink, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const few = all.every((each) => each.ys.filter((value) => value !== null).length < 40);
  const lines = all.map((each, at) => {
    const stroke = style.getPropertyValue(`--line-${(at % COLOURS) + 1}`).trim();
    const dash = at >= COLOURS ? [6, 4] : undefined;
    return { label: each.label, stroke, width: 1.8, dash, spanGaps: false, points: { show: points || few, size: points ? 8 : 4, fill: stroke } };
  });
  return {
    width: element.clientWidth,
    height,
    ...(x.utc ? { tzDate: UTC } : {}),
    legend: { show: false },
    cursor: { points: { size: 8 }, focus: { prox: 24 }, drag: onPick ? { x: false, y: false, click: () => {} } : { x: true, y: false } },
    focus: { alpha: 0.35 },
    scales: { x: { time: Boolean(x.time), range: (plot, low, high) => aroundOne(plot.data[0], x) ?? [low, high] }, y: { range: padded } },
    axes: [
      { ...axis, label: x.label, labelSize: 18, labelFont: axis.font, labelGap: 2, size: x.time ? 48 : 32, space: 90, values: x.time ? TIMES : (_, ticks) => ticks.map(write.x), ...(x.steps ? { incrs: x.steps } : {}) },
      { ...axis, size: widest, values: (_, ticks) => ticks.map(write.y), ...(y.steps ? { incrs: y.steps } : {}) },
    ],
    series: [{}, ...lines],
    hooks: { ready: [(plot) => listen(plot, pick)], setCursor: [(plot) => tell(plot, all, x, write)] },
  };
}

function padded(_, low, high) {
  if (low === null) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

// The room for what stands at the ticks, in pixels.
function widest(_, texts) {
  const longest = Math.max(0, ...(texts ?? []).map((each) => String(each).length));
  return Math.min(110, Math.max(40, 18 + 6.5 * longest));
}

// The nearest point's own figures, beside the pointer.
function tell(plot, all, x, write) {
  plot.tip ??= plot.over.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  const { left, idx } = plot.cursor;
  const at = idx === null || left < 0 ? null : nearest(plot);
  plot.tip.hidden = at === null;
  if (at === null) return;
  const value = plot.data[at.series][at.point];
  const when = x.tell ?? (x.time ? (seconds) => new Date(seconds * 1000).toLocaleString() : (number) => `${x.label} ${write.x(number)}`);
  plot.tip.textContent = `${all.length > 1 ? `${all[at.series - 1].label}: ` : ""}${write.y(value)} · ${when(plot.data[0][at.point])}`;
  const right = left > plot.over.clientWidth / 2;
  Object.assign(plot.tip.style, right ? { right: "4px", left: "auto" } : { left: "4px", right: "auto" });
  plot.tip.style.top = "2px";
}

// {series, point}: numbers within plot.data, of what is nearest to the pointer; null: nothing is near.
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

// The nearest points of a series on both sides, which in joined series are not at each x.
function around(ys, idx) {
  const found = [];
  for (let at = idx; at >= 0; at -= 1) if (typeof ys[at] === "number") { found.push(at); break; }
  for (let at = idx + 1; at < ys.length; at += 1) if (typeof ys[at] === "number") { found.push(at); break; }
  return found;
}

function listen(plot, pick) {
  plot.over.addEventListener("click", () => {
    const at = pick.current && nearest(plot);
    if (at && at.far < 30) pick.current(at.series - 1, plot.data[0][at.point]);
  });
}

const Legend = ({ all }) => html`<ul className="legend" aria-hidden=${true}>
  ${all.map((each, at) => html`<li key=${each.label}><i className=${at >= COLOURS ? "dashed" : ""} style=${{ color: `var(--line-${(at % COLOURS) + 1})` }}></i><span>${each.label}</span></li>`)}
</ul>`;

function Figures({ all, x, write, title }) {
  const [xs, ...columns] = joined(all);
  const every = Math.ceil(xs.length / ROWS);
  const chosen = xs.map((_, at) => at).filter((at) => at % every === 0 || at === xs.length - 1);
  const when = x.tell ?? (x.time ? (seconds) => new Date(seconds * 1000).toLocaleString() : write.x);
  const value = (column, at) => (typeof column[at] === "number" ? write.y(column[at]) : column[at] === null ? "none" : NOTHING);
  const caption = `${title}: ${chosen.length} of ${xs.length} points`;
  return html`<${Table} caption=${caption} hideCaption=${false}
    head=${[x.label, ...all.map((each) => ({ text: each.label, number: true }))]}
    rows=${chosen.map((at) => [when(xs[at]), ...columns.map((column) => value(column, at))])} />`;
}
