// Charts of the resource use of tasks over time, from the stored samples.
import { Chart } from "./chart.js";
import { ZONE } from "./format.js";
import { html, useMemo } from "./html.js";
import { Empty } from "./parts.js";
import { remarks, series } from "./series.js";
import { BYTE_RATE, BYTES, CORES, NUMBER, PERCENT, SPEED } from "./ticks.js";

const SCALES = { bytes: BYTES, percent: PERCENT, core_percent: CORES };
const TIME = { label: `time (${ZONE})`, time: true };

// Return [field of a sample, title, scale, whether the field is a sum over the sample's seconds] for each chart.
function charts(metrics) {
  const chart = ({ name, chart: title, unit, counted }) => [name, title, counted ? BYTE_RATE : SCALES[unit] ?? NUMBER, counted];
  const [gauges, counters] = [false, true].map((counted) => metrics.filter((each) => each.counted === counted).map(chart));
  return [...gauges, ["steps_per_second", "Steps per second", SPEED, false], ...counters];
}

const hasValues = (values) => values?.some((value) => value !== null && value !== undefined);

// `metrics`: the portal API's list of the metrics that executors measure.
export function Resources({ metrics, samples, tasks }) {
  const drawn = useMemo(() => charts(metrics).map(([field, title, scale, counted]) => {
    const all = tasks.filter((task) => hasValues(samples[task]?.[field])).map((task) => series(task, ...points(samples[task], field, counted)));
    return { field, title, scale, all };
  }).filter(({ all }) => all.length), [metrics, samples, tasks.join("\n")]);
  if (!drawn.length) return html`<${Empty}>The store has no samples of this job. A very short job has none.<//>`;
  const clock = remarks(drawn[0].all.map((each) => ({ ...each, gaps: 0, again: 0 })), true); // the same for all charts
  return html`<div>
    ${clock.map((each) => html`<p key=${each} className="soft remark">${each}.</p>`)}
    <div className="charts">
      ${drawn.map(({ field, title, scale, all }) => html`<${ResourceChart} key=${field} ...${{ title, scale, all }} />`)}
    </div>
  </div>`;
}

function ResourceChart({ title, scale, all }) {
  const shown = useMemo(() => all.map((each) => ({ ...each, back: 0 })), [all]);
  return html`<${Chart} title=${title} all=${shown} x=${TIME} y=${scale} />`;
}

function points(sample, field, counted) {
  const xs = sample.time_ms.map((time) => time / 1000);
  if (!counted) return [xs, sample[field]];
  const seconds = (at) => sample.seconds?.[at] ?? (at > 0 ? xs[at] - xs[at - 1] : null);
  return [xs, sample[field].map((value, at) => (value === null || !(seconds(at) > 0) ? null : value / seconds(at)))];
}
