// A chart of a few series: a drawing by uPlot, a legend, a description for screen readers, and a table of the values.
import { NOTHING } from "./format.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { Fold, Table } from "./parts.js";
import { lineOf, options, phrase } from "./plot.js";
import { inWords, remarks } from "./series.js";
import { NUMBER } from "./ticks.js";
import uPlot from "./vendor/uPlot.js";

const ROWS = 60; // limit of the table of values
const HEIGHT = 220;
const DESCRIBED = 8; // limit of series in the description for screen readers
// `all`: results of series(). A single series may have `colours`: a CSS variable, or undefined, for each point.
// `x`, `y`: scales of ticks.js. `x` also has `label`; `time` if x is seconds of the epoch, `utc` to show them in UTC;
// `describe` to format an x as a phrase. `onPick(series, x)` handles clicks. `points`: whether to draw all points.
export function Chart({ title, all, x: horizontal, y = NUMBER, onPick = null, points = false, height = HEIGHT }) {
  const x = useMemo(() => ({ ...NUMBER, ...horizontal }), [horizontal]);
  const theme = useTheme();
  const id = useId();
  const shown = useMemo(() => all.filter((each) => each.xs.length), [all]);
  const notes = remarks(shown, Boolean(x.time ?? x.describe));
  if (!shown.length) return html`<figure className="chart"><figcaption>${title}</figcaption><p className="soft">No values.</p></figure>`;
  return html`<figure className="chart">
    <figcaption id=${id}>${title}</figcaption>
    <${Drawing} key=${theme} ...${{ all: shown, x, y, onPick, points, height, title }} />
    ${shown.length > 1 && html`<${Legend} all=${shown} />`}
    ${notes.map((each) => html`<p key=${each} className="soft remark">${each}.</p>`)}
    <${Fold} title="Values as a table">${() => html`<${Values} ...${{ all: shown, x, y, title }} />`}<//>
  </figure>`;
}

// Airflow's theme. A canvas does not follow CSS, so charts are drawn again when the theme changes.
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

function Drawing({ all, x, y, onPick, points, height, title }) {
  const frame = useRef(null);
  const drawn = useRef(null);
  const current = useRef({});
  current.current = { all, onPick };
  const data = useMemo(() => joined(all), [all]);
  const words = all.slice(0, DESCRIBED).map((each) => inWords(each, x.write, y.write)).join("; ");
  const more = all.length > DESCRIBED ? `; and ${all.length - DESCRIBED} more` : "";
  const labels = all.map((each) => each.label).join("\n");
  useEffect(() => {
    const element = frame.current;
    const plot = new uPlot(options({ element, x, y, points, height, current, pickable: Boolean(onPick) }), data, element);
    drawn.current = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
    // Only other series need a new plot; new values of the same series are set below.
  }, [labels, x.label, x.time, points, height]);
  useEffect(() => drawn.current?.setData(data), [data]);
  const look = `drawing${onPick ? " pickable" : ""}`;
  return html`<div ref=${frame} className=${look} role="img" aria-label=${`Chart of ${title} over ${x.label}. ${words}${more}`}></div>`;
}

// Join the series on one list of x. A series has undefined at an x without a point, which does not interrupt its line.
function joined(all) {
  if (all.length === 1) return [all[0].xs, all[0].ys];
  return uPlot.join(all.map((each) => [each.xs, each.ys]));
}

const Legend = ({ all }) => html`<ul className="legend" aria-hidden=${true}>
  ${all.map((each, at) => html`<li key=${each.label}><i className=${lineOf(at).dashed ? "dashed" : ""} style=${{ color: `var(${lineOf(at).variable})` }}></i><span>${each.label}</span></li>`)}
</ul>`;

function Values({ all, x, y, title }) {
  const [xs, ...columns] = joined(all);
  const every = Math.ceil(xs.length / ROWS);
  const chosen = xs.map((_, at) => at).filter((at) => at % every === 0 || at === xs.length - 1);
  const when = x.describe || x.time ? phrase(x) : x.write;
  const value = (column, at) => (typeof column[at] === "number" ? y.write(column[at]) : column[at] === null ? "none" : NOTHING);
  const caption = `${title}: ${chosen.length} of ${xs.length} points`;
  return html`<${Table} caption=${caption} hideCaption=${false}
    head=${[x.label, ...all.map((each) => ({ text: each.label, number: true }))]}
    rows=${chosen.map((at) => [when(xs[at]), ...columns.map((column) => value(column, at))])} />`;
}
