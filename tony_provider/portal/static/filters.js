// The filters of the list of jobs. On a phone, they are hidden until the user opens them.
import { address, useJson } from "./api.js";
import { html, useEffect, useId, useState } from "./html.js";

export const FILTERS = ["conn_id", "text", "dag_id", "task_id", "run_id", "user", "verdict", "date_after", "date_before", "after", "before"];
const LABELS = { text: "Search", dag_id: "DAG", task_id: "Task", run_id: "Run ID", user: "User", date_after: "Run date from (UTC)", date_before: "Run date before (UTC)", after: "Submitted from (UTC)", before: "Submitted before (UTC)" };
const STATES = [
  ["", "Any"],
  ["SUCCEEDED", "Succeeded"],
  ["FAILED", "Failed"],
  ["KILLED", "Killed"],
  ["RUNNING", "Running"],
  ["SUSPENDED", "Suspended"],
  ["UNSEEN", "Unseen (no task watches it now)"],
  ["UNWATCHED", "Unwatched (task does not wait)"],
  ["LOST", "Lost (end not recorded)"],
];

// Typed values apply when the form is submitted. Selected values apply at once.
export function Filters({ filters, onChange }) {
  const [typed, setTyped] = useState(filters);
  const [open, setOpen] = useState(false);
  const form = useId();
  const { data } = useJson(address("connections"));
  const sources = [["", "Airflow DAGs"], ...(data?.connections ?? []).map((each) => [each, `Command line, connection ${each}`])];
  const current = JSON.stringify(filters);
  useEffect(() => setTyped(JSON.parse(current)), [current]); // also after the browser's back button
  const active = FILTERS.filter((name) => filters[name] !== "").length;
  const set = (name, value) => setTyped({ ...typed, [name]: value });
  const pick = (name, value) => {
    set(name, value);
    onChange({ ...typed, [name]: value });
  };
  const send = (event) => {
    event.preventDefault();
    onChange(Object.fromEntries(FILTERS.map((name) => [name, typed[name].trim()])));
  };
  const fields = { typed, set };
  return html`<div>
    <button type="button" className="filters-toggle" aria-expanded=${open} aria-controls=${form} onClick=${() => setOpen(!open)}>Filters${active > 0 && ` (${active} active)`}</button>
    <form id=${form} className=${`filters${open ? " open" : ""}`} role="search" aria-label="Filter the jobs" onSubmit=${send}>
      <${Selection} label="Source" name="conn_id" options=${sources} value=${typed.conn_id} onPick=${pick} />
      <${Field} name="text" type="search" ...${fields} />
      <${Field} name="dag_id" ...${fields} />
      <${Field} name="task_id" ...${fields} />
      <${Field} name="run_id" ...${fields} />
      <${Field} name="user" ...${fields} />
      <${Selection} label="State" name="verdict" options=${STATES} value=${typed.verdict} onPick=${pick} />
      <${Field} name="date_after" type="date" ...${fields} />
      <${Field} name="date_before" type="date" ...${fields} />
      <${Field} name="after" type="date" ...${fields} />
      <${Field} name="before" type="date" ...${fields} />
      <div className="buttons">
        <button type="submit" className="main">Filter</button>
        <button type="button" onClick=${() => onChange(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Clear</button>
      </div>
    </form>
  </div>`;
}

function Field({ name, type = "text", typed, set }) {
  const id = useId();
  return html`<div>
    <label htmlFor=${id}>${LABELS[name]}</label>
    <input id=${id} name=${name} type=${type} value=${typed[name]} onChange=${(event) => set(name, event.target.value)} />
  </div>`;
}

function Selection({ label, name, options, value, onPick }) {
  const id = useId();
  return html`<div>
    <label htmlFor=${id}>${label}</label>
    <select id=${id} name=${name} value=${value} onChange=${(event) => onPick(name, event.target.value)}>
      ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
    </select>
  </div>`;
}
