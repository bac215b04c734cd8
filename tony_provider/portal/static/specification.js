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

const WORDS_COMPARED = 500; // of a text

// Words that both lists have in the same order.
function common(one, other) {
  const lengths = Array.from({ length: one.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) lengths[i][j] = one[i] === other[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  const found = [];
  for (let i = 0, j = 0; i < one.length && j < other.length; ) {
    if (one[i] === other[j]) {
      found.push(one[i]);
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

// Each text in parts, {text, differs}: words, such as the arguments of a command, that not all texts have.
export function wordDifferences(texts) {
  const words = texts.map((text) => text.split(/(\s+)/));
  const short = words.every((each) => each.length <= 2 * WORDS_COMPARED);
  const shared = short ? words.map((each) => each.filter((word) => word.trim())).reduce(common) : [];
  return words.map((each) => {
    let next = 0;
    return each.map((word) => {
      const same = !word.trim() || !short || word === shared[next];
      if (word.trim() && word === shared[next]) next += 1;
      return { text: word, differs: !same };
    });
  });
}

// The values of a key in several jobs; within texts of several words, such as commands, those that differ are marked.
function writtenValues(values) {
  const texts = values.filter((value) => typeof value === "string");
  const given = values.filter((value) => value !== null && value !== undefined);
  if (texts.length < 2 || texts.length < given.length || !texts.every((text) => /\s/.test(text.trim()))) return null;
  const parts = wordDifferences(texts);
  return values.map((value) => (typeof value === "string" ? html`<code>${parts.shift().map(({ text, differs }, at) => (differs ? html`<mark key=${at}>${text}</mark>` : text))}</code>` : written(value)));
}

// `differences`: {path: [a value per job]}; `names`: of the jobs.
export function Differences({ caption, differences, names, none }) {
  const entries = Object.entries(differences);
  if (!entries.length) return html`<${Empty}>${none}<//>`;
  const rows = entries.slice(0, ROWS).map(([path, values]) => [html`<code>${path}</code>`, ...(writtenValues(values) ?? values.map(written))]);
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
  const cells = ({ path, values, differs }) => {
    const marked = differs ? writtenValues(values) ?? values.map((value) => html`<mark>${written(value)}</mark>`) : values.map(written);
    return [
      differs ? html`<mark><code>${path}</code> <small>differs</small></mark>` : html`<code>${path}</code>`,
      ...marked.map((value, at) => (specifications[at] ? value : html`<span className="soft">unknown</span>`)),
    ];
  };
  return html`<div>
    <p><label><input type="checkbox" checked=${onlyDifferent} onChange=${(event) => setOnly(event.target.checked)} /> Only differences (${rows.filter((row) => row.differs).length} of ${rows.length} keys)</label></p>
    <${Table} caption="Specifications side by side" head=${["Key", ...names]} rows=${shown.map(cells)} keys=${shown.map((row) => row.path)} />
  </div>`;
}
