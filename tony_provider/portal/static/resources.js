// What the tasks of a job used over time, as the samples on its store have it.
import { Chart } from "./chart.js";
import { bytes, BYTE_STEPS, figure } from "./format.js";
import { html, useMemo } from "./html.js";
import { Empty } from "./parts.js";
import { series } from "./series.js";

const cores = (value) => `${figure(value / 100)}`;
const rate = (value) => `${bytes(value)}/s`;
const percentage = (value) => `${figure(value)} %`;
const WRITERS = { bytes, percent: percentage, core_percent: cores };

const SPEED = { name: "steps_per_second", chart: "Steps per second", unit: "steps", counted: false };

// Field of a sample, title, how it is written, whether it is a sum over the sample's seconds.
const drawn = (metrics) =>
  [...metrics.filter((each) => !each.counted), SPEED, ...metrics.filter((each) => each.counted)]
    .map(({ name, chart, unit, counted }) => [name, chart, counted ? rate : WRITERS[unit] ?? figure, counted]);

const something = (values) => values?.some((value) => value !== null && value !== undefined);

// `metrics`: what the portal's server answers of the metrics that executors measure.
export function Resources({ metrics, samples, tasks }) {
  const there = drawn(metrics).filter(([field]) => tasks.some((task) => something(samples[task]?.[field])));
  if (!there.length) return html`<${Empty}>No samples of this job are stored. A very short job has none.<//>`;
  return html`<div className="charts">
    ${there.map(([field, title, write, summed]) => html`<${ResourceChart} key=${field} ...${{ field, title, write, summed, samples, tasks }} />`)}
  </div>`;
}

function ResourceChart({ field, title, write, summed, samples, tasks }) {
  const all = useMemo(
    () => tasks.filter((task) => something(samples[task]?.[field])).map((task) => series(task, ...line(samples[task], field, summed))),
    [field, summed, samples, tasks],
  );
  return html`<${Chart} title=${title} all=${all} x=${{ label: "time", time: true }} y=${{ write, steps: write === bytes || write === rate ? BYTE_STEPS : undefined }} />`;
}

function line(sample, field, summed) {
  const xs = sample.time_ms.map((time) => time / 1000);
  if (!summed) return [xs, sample[field]];
  const over = (at) => sample.seconds?.[at] ?? (at > 0 ? xs[at] - xs[at - 1] : null);
  return [xs, sample[field].map((value, at) => (value === null || !(over(at) > 0) ? null : value / over(at)))];
}
