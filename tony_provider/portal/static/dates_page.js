// The tab on a DAG: what backfills fill in, figures of its trainings over the dates of their runs.
import { address, useJson } from "./api.js";
import { Chart } from "./chart.js";
import { Choice } from "./choice.js";
import { count, drawable, duration, DURATION_STEPS, figure, runDate, NOTHING, numeric } from "./format.js";
import { html, useMemo, useNavigate } from "./html.js";
import { Empty, Fold, Loading, Problem, Section, State, Switch, Table, To, useAfterPaint } from "./parts.js";
import { useQuery } from "./query.js";
import { toJob, toJobs, toRun } from "./routes.js";

const METRICS = 6; // charts at a time
const FIRST = 2; // charts that are there before anything else is drawn
const RENEWED = 30; // seconds
const ROWS = 400; // of the table
const TASKS = 50; // to switch between

const named = (task) => (task.map_index >= 0 ? `${task.task_id} [${task.map_index}]` : task.task_id);

const FIGURES = [
  ["duration_s", "Duration", duration],
  ["waiting_s", "Waiting for containers", duration],
  ["restarts", "Restarts", figure],
  ["memory_gb_hours", "Memory (GB hours)", figure],
  ["vcore_hours", "Vcore hours", figure],
  ["gpu_hours", "GPU hours", figure],
];

export function DatesPage({ dagId }) {
  const { data, error, loading } = useJson(address(`dags/${encodeURIComponent(dagId)}/dates`), RENEWED);
  return html`<div>
    <header><h1>Trainings by date</h1></header>
    <p><${To} to=${toJobs({ dag_id: dagId })}>All jobs of this DAG<//></p>
    ${loading && html`<${Loading} what="the dates" />`}
    ${error && html`<${Problem} title="The dates cannot be loaded:" text=${error} />`}
    ${data && (data.tasks.length ? html`<${Tasks} dagId=${dagId} tasks=${data.tasks} />` : html`<${Empty}>No task of this DAG has run a training yet.<//>`)}
  </div>`;
}

function Tasks({ dagId, tasks }) {
  const [query, setQuery] = useQuery();
  const task = tasks.find((each) => named(each) === query.get("training")) ?? tasks[0];
  const set = (name, values) => setQuery((old) => {
    const next = new URLSearchParams(old);
    next.delete(name);
    for (const value of values) next.append(name, value);
    return next;
  }, { replace: true });
  const asked = query.getAll("metric").filter((name) => task.metrics.includes(name));
  const chosen = asked.length || query.has("metric") ? asked.slice(0, METRICS) : task.metrics.slice(0, 1);
  return html`<div>
    ${tasks.length > 1 && html`<${Switch} label="Task" options=${tasks.slice(0, TASKS).map((each) => [named(each), named(each)])} value=${named(task)} onChange=${(value) => set("training", [value])} />`}
    ${task.metrics.length > 0 && html`<${Choice} title="Published metrics" word="metric" names=${task.metrics} chosen=${chosen} most=${METRICS} onChange=${(all) => set("metric", all.length ? all : [""])} />`}
    <${Pictures} dagId=${dagId} task=${task} metrics=${chosen} />
  </div>`;
}

function Pictures({ dagId, task, metrics }) {
  const navigate = useNavigate();
  const points = useMemo(() => dated(task.points), [task]);
  const missing = points.filter((point) => !point.application_id).length;
  const pick = (_, x) => {
    const point = points.find((each) => each.seconds === x && each.application_id);
    if (point) navigate(toJob(point.application_id));
  };
  const chart = (title, read, write) => html`<${DateChart} key=${title} ...${{ title, points, read, write, onPick: pick }} />`;
  const all = useAfterPaint();
  const drawn = FIGURES.filter(([name]) => !name.endsWith("gpu_hours") || points.some((point) => point[name] > 0));
  const charts = [
    ...metrics.map((metric) => chart(metric, (point) => point.metrics?.[metric], figure)),
    ...drawn.map(([name, title, write]) => chart(title, (point) => point[name], write)),
  ];
  return html`<div>
    <${Section} title=${named(task)} note=${`${count(points.length, "date")}${missing ? `, ${missing} without a job (${missing === 1 ? "gap" : "gaps"})` : ""}; click a point to open its job`}>
      <div className="charts">${all ? charts : charts.slice(0, FIRST)}</div>
    <//>
    ${all && html`<${Section} title="Values as a table"><${Dates} dagId=${dagId} points=${points} metrics=${metrics} /><//>`}
  </div>`;
}

const dated = (points) => points
  .map((point) => ({ ...point, seconds: Date.parse(point.date) / 1000 }))
  .filter((point) => Number.isFinite(point.seconds))
  .sort((one, other) => one.seconds - other.seconds);

function DateChart({ title, points, read, write, onPick }) {
  const all = useMemo(() => {
    const ys = points.map((point) => (point.application_id ? drawable(read(point)) : null));
    const infinite = points.filter((point, at) => point.application_id && ys[at] === null && typeof read(point) === "string" && !Number.isFinite(numeric(read(point)))).length;
    return [{ label: title, xs: points.map((point) => point.seconds), ys, gaps: infinite, again: 0, back: 0 }];
  }, [title, points, read]);
  const x = { label: "date", time: true, utc: true, tell: (seconds) => runDate(new Date(seconds * 1000).toISOString()) };
  return html`<${Chart} title=${title} all=${all} x=${x} y=${{ write, steps: write === duration ? DURATION_STEPS : undefined }} points=${true} onPick=${onPick} />`;
}

function Dates({ dagId, points, metrics }) {
  const number = (text) => ({ text, number: true });
  const head = ["Date", "State", "Job", ...metrics.map(number), ...FIGURES.map(([, title]) => number(title))];
  const newest = [...points].reverse();
  const row = (point) => [
    point.run_id ? html`<${To} to=${toRun({ ...point, dag_id: dagId })}><span className="line">${runDate(point.date)}</span><//>` : runDate(point.date),
    point.state ? html`<${State} state=${point.state} />` : html`<span className="soft">no job</span>`,
    point.application_id ? html`<${To} to=${toJob(point.application_id)}>${point.application_id}<//>` : NOTHING,
    ...metrics.map((metric) => figure(point.metrics?.[metric])),
    ...FIGURES.map(([name, , write]) => write(point[name])),
  ];
  const table = (rows, caption) => html`<${Table} caption=${caption} head=${head} rows=${rows.map(row)} />`;
  return html`<div>
    ${table(newest.slice(0, 40), "Trainings by date, newest first")}
    ${newest.length > 40 && html`<${Fold} title=${`${newest.length - 40} earlier dates`}>${() => table(newest.slice(40, ROWS), "Trainings by date, earlier dates")}<//>`}
  </div>`;
}
