// A job's specification as people read it, and what differs between the specifications of several jobs.
import { html, useMemo, useState } from "./html.js";
import { Empty, Table } from "./parts.js";

const PLAIN = /^[A-Za-z_/.][\w ./:@=+,{}()-]*$/; // text that needs no quotes in YAML
const WORDS = /^(true|false|null|yes|no|on|off|~)$/i;
const ROWS = 200;

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = PLAIN.test(value) && !WORDS.test(value) && !/: |:$| #|\s$/.test(value);
  return plain ? value : JSON.stringify(value);
}

const isEmpty = (value) => typeof value === "object" && value !== null && Object.keys(value).length === 0;
const isNested = (value) => typeof value === "object" && value !== null && !isEmpty(value);

// YAML enough to be read, and to be pasted into a job file.
export function yaml(value, indent = "") {
  if (!isNested(value)) return `${indent}${scalar(value)}\n`;
  if (Array.isArray(value)) return value.map((each) => `${indent}- ${yaml(each, `${indent}  `).trimStart()}`).join("");
  return Object.entries(value)
    .map(([key, each]) => (isNested(each) ? `${indent}${scalar(key)}:\n${yaml(each, `${indent}  `)}` : `${indent}${scalar(key)}: ${scalar(each)}\n`))
    .join("");
}

export const Yaml = ({ value, label }) => html`<pre tabIndex=${0} role="region" aria-label=${label}>${yaml(value)}</pre>`;

// {path: value} of all leaves; paths as errors name them, such as tasks.worker.memory.
export function leaves(value, path = "", found = new Map()) {
  if (!isNested(value)) return found.set(path || ".", value);
  for (const [key, each] of Object.entries(value)) leaves(each, Array.isArray(value) ? `${path}[${key}]` : path ? `${path}.${key}` : key, found);
  return found;
}

const written = (value) => (value === null || value === undefined ? html`<span className="soft">not set</span>` : html`<code>${typeof value === "string" ? value : JSON.stringify(value)}</code>`);

// `differences`: {path: [a value per job]}; `names`: of the jobs.
export function Differences({ caption, differences, names, none }) {
  const entries = Object.entries(differences);
  if (!entries.length) return html`<${Empty}>${none}<//>`;
  const rows = entries.slice(0, ROWS).map(([path, values]) => [html`<code>${path}</code>`, ...values.map(written)]);
  return html`<div>
    <${Table} caption=${caption} head=${["Key", ...names]} rows=${rows} keys=${entries.slice(0, ROWS).map(([path]) => path)} />
    ${entries.length > ROWS && html`<p className="soft">${entries.length - ROWS} more keys differ.</p>`}
  </div>`;
}

// Whole specifications, a column for each job; what differs is marked.
export function SideBySide({ specifications, names }) {
  const [onlyDifferent, setOnly] = useState(false);
  const rows = useMemo(() => {
    const columns = specifications.map((each) => (each ? leaves(each) : new Map()));
    const paths = [...new Set(columns.flatMap((each) => [...each.keys()]))];
    return paths.map((path) => {
      const values = columns.map((each) => each.get(path));
      const texts = values.filter((_, at) => specifications[at]).map((value) => JSON.stringify(value));
      return { path, values, differs: new Set(texts).size > 1 };
    });
  }, [specifications]);
  const shown = rows.filter((row) => row.differs || !onlyDifferent);
  const cells = ({ path, values, differs }) => [
    differs ? html`<mark><code>${path}</code> <small>differs</small></mark>` : html`<code>${path}</code>`,
    ...values.map((value, at) => (specifications[at] ? (differs ? html`<mark>${written(value)}</mark>` : written(value)) : html`<span className="soft">unknown</span>`)),
  ];
  return html`<div>
    <p><label><input type="checkbox" checked=${onlyDifferent} onChange=${(event) => setOnly(event.target.checked)} /> Only differences (${rows.filter((row) => row.differs).length} of ${rows.length} keys)</label></p>
    <${Table} caption="Specifications side by side" head=${["Key", ...names]} rows=${shown.map(cells)} keys=${shown.map((row) => row.path)} />
  </div>`;
}
