// What a training produced: its model, returned values, metrics and parameters; of one job, and of several side by side.
import { Command } from "./command.js";
import { byName, figure, known, NOTHING, numeric, shortened } from "./format.js";
import { html, useState } from "./html.js";
import { Empty, Facts, Fold, Section, Table } from "./parts.js";

const FIRST = 12; // metrics and parameters before the rest is opened
const MOST = 500;
const COMPARED = 200; // rows
const SOURCES = { program: "program (tony_sdk.log_params)", command: "command line", run: "params of the Airflow run" };

// `status`: the newest one of a job that has not ended.
export function Results({ summary, status }) {
  const { model_dir: model, export_dir: exported } = { ...summary, ...(status && { model_dir: status.model_dir, export_dir: status.export?.uri }) };
  const metrics = Object.entries(summary.metrics);
  const parameters = Object.entries({ ...summary.parameters, ...status?.parameters }).sort(([one], [other]) => byName(one, other));
  const source = (name) => SOURCES[Object.hasOwn(status?.parameters ?? {}, name) ? "program" : summary.parameter_sources[name]];
  return html`<${Section} title="Results">
    ${model && html`<h3>Model</h3><${Command} text=${model} label="URI of the model" />`}
    ${exported && html`<h3>Newest export</h3><${Command} text=${exported} label="URI of the newest export" />`}
    ${known(summary.returned) && html`<h3>Returned values</h3><${Returned} text=${summary.returned} />`}
    ${metrics.length > 0 && html`<h3>Metrics</h3><${Folded} word="metrics" entries=${metrics}>${(some) => html`<${Facts} facts=${some.map(([name, value]) => [name, figure(value)])} />`}<//>`}
    ${parameters.length > 0 && html`<h3>Parameters</h3><${Folded} word="parameters" entries=${parameters}>${(some) => html`<${Table} caption="Parameters" head=${["Name", "Value", "Source"]} rows=${some.map(([name, value]) => [html`<code>${name}</code>`, html`<code>${value}</code>`, source(name)])} keys=${some.map(([name]) => name)} />`}<//>`}
    ${!model && !exported && !known(summary.returned) && !metrics.length && !parameters.length && html`<${Empty}>This job has no results yet. A program can report metrics (tony_sdk.report) and parameters (tony_sdk.log_params).<//>`}
  <//>`;
}

// The first entries, and the others when they are opened.
const Folded = ({ word, entries, children }) => html`<div>
  ${children(entries.slice(0, FIRST))}
  ${entries.length > FIRST && html`<${Fold} title=${`${entries.length - FIRST} more ${word}`}>${() => children(entries.slice(FIRST, MOST))}<//>`}
</div>`;

// A JSON object as pairs; another value, or one that is cut, as text.
function Returned({ text }) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // it is cut
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return html`<pre tabIndex=${0} role="region" aria-label="Returned value">${text}</pre>`;
  return html`<${Facts} facts=${Object.entries(value).slice(0, MOST).map(([name, each]) => [name, typeof each === "number" ? figure(each) : typeof each === "string" ? each : JSON.stringify(each)])} />`;
}

// 1e-3 and 0.001 are the same value.
const normal = (value) => (!known(value) ? "" : Number.isNaN(numeric(value)) ? String(value) : String(numeric(value)));

// Metrics and parameters of several jobs: values that differ are marked.
export function ComparedResults({ jobs, heads }) {
  const [onlyDifferent, setOnly] = useState(false);
  const names = (kind) => [...new Set(jobs.flatMap((job) => Object.keys(job[kind])))];
  const named = [...names("metrics").map((name) => ["metrics", name]), ...names("parameters").sort(byName).map((name) => ["parameters", name])];
  const rows = named.map(([kind, name]) => {
    const values = jobs.map((job) => (Object.hasOwn(job[kind], name) ? job[kind][name] : null));
    return { kind, name, values, differs: new Set(values.map(normal)).size > 1 };
  });
  const different = rows.filter((row) => row.differs);
  const shown = (onlyDifferent ? different : rows).slice(0, COMPARED);
  const written = (kind, value) => (!known(value) ? NOTHING : kind === "metrics" ? figure(value) : html`<code>${value}</code>`);
  const cells = ({ kind, name, values, differs }) => [
    html`<span><code>${shortened(name, 80)}</code> <small>${kind === "metrics" ? "metric" : "parameter"}${differs ? ", differs" : ""}</small></span>`,
    ...values.map((value) => (differs ? html`<mark>${written(kind, value)}</mark>` : written(kind, value))),
  ];
  if (!rows.length) return html`<${Empty}>None of these jobs has reported metrics or parameters.<//>`;
  return html`<div>
    <p><label><input type="checkbox" checked=${onlyDifferent} onChange=${(event) => setOnly(event.target.checked)} /> Only differences (${different.length} of ${rows.length} rows)</label></p>
    <${Table} caption="Metrics and parameters of the jobs" head=${["Name", ...heads]} rows=${shown.map(cells)} keys=${shown.map(({ kind, name }) => `${kind}:${name}`)} />
    ${(onlyDifferent ? different : rows).length > COMPARED && html`<p className="soft">The first ${COMPARED} rows.</p>`}
  </div>`;
}
