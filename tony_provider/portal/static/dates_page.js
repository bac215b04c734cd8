// The tab on a DAG: metrics, durations and resource use of its trainings over the dates of their runs.
import { address, useJson } from "./api.js";
import { Chart } from "./chart.js";
import { Choice } from "./choice.js";
import { count, drawable, figure, hours, NOTHING, numeric, runDate } from "./format.js";
import { html, useMemo, useNavigate } from "./html.js";
import { Empty, Fold, Loading, Problem, Section, Switch, Table, To, useAfterPaint } from "./parts.js";
import { useQuery } from "./query.js";
import { toJob, toJobs, toRun } from "./routes.js";
import { StaleModels } from "./stale.js";
import { pointColour, State } from "./states.js";
import { COUNT, DURATION, NUMBER } from "./ticks.js";

const METRICS = 6; // limit of charts of metrics
const FIRST = 2; // charts that are drawn before the rest of the page
const REFRESH = 30; // seconds
const ROWS = 400; // limit of the table
const TASKS = 50; // limit of tasks that the user can select
const HOURS = { ...NUMBER, write: hours };

const named = (task) => (task.map_index >= 0 ? `${task.task_id} [${task.map_index}]` : task.task_id);

// Field, title, scale.
const MEASURES = [
  ["duration_s", "Duration", DURATION],
  ["waiting_s", "Waiting time", DURATION],
  ["restarts", "Restarts", COUNT],
  ["memory_gb_hours", "Memory (GB hours)", HOURS],
  ["vcore_hours", "Vcore hours", HOURS],
  ["gpu_hours", "GPU hours", HOURS],
];

export function DatesPage({ dagId }) {
  const { data, error, loading } = useJson(address(`dags/${encodeURIComponent(dagId)}/dates`), REFRESH);
  return html`<div>
    <header><h1>Trainings by date</h1></header>
    <p><${To} to=${toJobs({ dag_id: dagId })}>All jobs of this DAG<//></p>
    ${loading && html`<${Loading} what="the dates" />`}
    ${error && html`<${Problem} title="The dates cannot be loaded:" text=${error} />`}
    ${data && (data.tasks.length ? html`<${Tasks} dagId=${dagId} tasks=${data.tasks} />` : html`<${Empty}>No task of this DAG has submitted a job yet. If a job was rejected, the tab Training of its task shows the reason.<//>`)}
    ${data?.tasks.length > 0 && html`<${StaleModels} dagId=${dagId} />`}
  </div>`;
}

function Tasks({ dagId, tasks }) {
  const [query, setQuery] = useQuery();
  const task = tasks.find((each) => named(each) === query.get("training")) ?? tasks.find((each) => each.metrics.length) ?? tasks[0];
  const set = (name, values) => setQuery((old) => {
    const next = new URLSearchParams(old);
    next.delete(name);
    for (const value of values) next.append(name, value);
    return next;
  }, { replace: true });
  const selected = query.getAll("metric").filter((name) => task.metrics.includes(name));
  const chosen = selected.length || query.has("metric") ? selected.slice(0, METRICS) : task.metrics.slice(0, 1);
  return html`<div>
    ${tasks.length > 1 && html`<${Switch} label="Task" options=${tasks.slice(0, TASKS).map((each) => [named(each), named(each)])} value=${named(task)} onChange=${(value) => set("training", [value])} />`}
    ${task.metrics.length > 0 && html`<${Choice} title="Metrics" word="metric" names=${task.metrics} chosen=${chosen} most=${METRICS} onChange=${(all) => set("metric", all.length ? all : [""])} />`}
    <${Charts} dagId=${dagId} task=${task} metrics=${chosen} />
  </div>`;
}

function Charts({ dagId, task, metrics }) {
  const navigate = useNavigate();
  const points = useMemo(() => dated(task.points), [task]);
  const missing = points.filter((point) => !point.application_id).length;
  const pick = (_, x) => {
    const point = points.find((each) => each.seconds === x && each.application_id);
    if (point) navigate(toJob(point.application_id));
  };
  const chart = (title, read, scale) => html`<${DateChart} key=${title} ...${{ title, points, read, scale, onPick: pick }} />`;
  const all = useAfterPaint();
  const drawn = measures(points);
  const charts = [
    ...metrics.map((metric) => chart(metric, (point) => point.metrics?.[metric], NUMBER)),
    ...drawn.map(([name, title, scale]) => chart(title, (point) => point[name], scale)),
  ];
  const states = [...new Set(points.map((point) => point.state).filter(pointColour))];
  return html`<div>
    <${Section} title=${named(task)} note=${`${count(points.length, "date")}${missing ? `, ${missing} without a job (${missing === 1 ? "gap" : "gaps"})` : ""}; click a point to open its job`}>
      ${states.length > 0 && html`<p className="soft">Point colors: ${states.map((state) => html`<${State} key=${state} state=${state} /> `)}</p>`}
      <div className="charts">${all ? charts : charts.slice(0, FIRST)}</div>
    <//>
    ${all && html`<${Section} title="Values as a table"><${Dates} dagId=${dagId} points=${points} metrics=${metrics} /><//>`}
  </div>`;
}

const measures = (points) => MEASURES.filter(([name]) => name !== "gpu_hours" || points.some((point) => point[name] > 0));

const dated = (points) => points
  .map((point) => ({ ...point, seconds: Date.parse(point.date) / 1000 }))
  .filter((point) => Number.isFinite(point.seconds))
  .sort((one, other) => one.seconds - other.seconds);

const DATES = { label: "run date (UTC)", time: true, utc: true, describe: (seconds) => runDate(new Date(seconds * 1000).toISOString()) };

function DateChart({ title, points, read, scale, onPick }) {
  const all = useMemo(() => {
    const ys = points.map((point) => (point.application_id ? drawable(read(point)) : null));
    const infinite = points.filter((point, at) => point.application_id && ys[at] === null && typeof read(point) === "string" && !Number.isFinite(numeric(read(point)))).length;
    const colours = points.map((point) => pointColour(point.state));
    return [{ label: title, xs: points.map((point) => point.seconds), ys, colours, gaps: infinite, again: 0, back: 0 }];
  }, [title, points, read]);
  return html`<${Chart} title=${title} all=${all} x=${DATES} y=${scale} points=${true} onPick=${onPick} />`;
}

function Dates({ dagId, points, metrics }) {
  const number = (text) => ({ text, number: true });
  const drawn = measures(points);
  const head = ["Run date", "State", "Job", ...metrics.map(number), ...drawn.map(([, title]) => number(title))];
  const newest = [...points].reverse();
  const row = (point) => [
    point.run_id ? html`<${To} to=${toRun({ ...point, dag_id: dagId })}><span className="line">${runDate(point.date)}</span><//>` : runDate(point.date),
    point.state ? html`<${State} state=${point.state} />` : html`<span className="soft">no job</span>`,
    point.application_id ? html`<${To} to=${toJob(point.application_id)}>${point.application_id}<//>` : NOTHING,
    ...metrics.map((metric) => figure(point.metrics?.[metric])),
    ...drawn.map(([name, , { write }]) => write(point[name])),
  ];
  const table = (rows, caption) => html`<${Table} caption=${caption} head=${head} rows=${rows.map(row)} />`;
  return html`<div>
    ${table(newest.slice(0, 40), "Trainings by date, newest first")}
    ${newest.length > 40 && html`<${Fold} title=${`${newest.length - 40} earlier dates`}>${() => table(newest.slice(40, ROWS), "Trainings by date, earlier dates")}<//>`}
  </div>`;
}
