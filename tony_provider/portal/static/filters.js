// The filters of the list of jobs.
import { html, useEffect, useId, useState } from "./html.js";

export const FILTERS = ["text", "dag_id", "task_id", "run_id", "user", "verdict", "date_after", "date_before", "after", "before"];
const LABELS = { text: "Text", dag_id: "DAG", task_id: "Task", run_id: "Run", user: "User", date_after: "Date from (UTC)", date_before: "Date before (UTC)", after: "Submitted from (UTC)", before: "Submitted before (UTC)" };
const VERDICTS = [["", "Any"], ["SUCCEEDED", "Succeeded"], ["FAILED", "Failed"], ["KILLED", "Killed"], ["RUNNING", "Running"], ["UNSEEN", "Unseen (no task watches it now)"], ["UNWATCHED", "Unwatched (task does not wait)"], ["LOST", "Lost (end not recorded)"]];

// What is typed counts when it is sent; what is picked from a list counts at once.
export function Filters({ filters, onChange }) {
  const [typed, setTyped] = useState(filters);
  const standing = JSON.stringify(filters);
  useEffect(() => setTyped(JSON.parse(standing)), [standing]); // also when the browser went back
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
  return html`<form className="filters" role="search" aria-label="Filter the jobs" onSubmit=${send}>
    <${Field} name="text" type="search" ...${fields} />
    <${Field} name="dag_id" ...${fields} />
    <${Field} name="task_id" ...${fields} />
    <${Field} name="run_id" ...${fields} />
    <${Field} name="user" ...${fields} />
    <${Verdict} value=${typed.verdict} onPick=${(value) => pick("verdict", value)} />
    <${Field} name="date_after" type="date" ...${fields} />
    <${Field} name="date_before" type="date" ...${fields} />
    <${Field} name="after" type="date" ...${fields} />
    <${Field} name="before" type="date" ...${fields} />
    <div className="buttons">
      <button type="submit" className="main">Filter</button>
      <button type="button" onClick=${() => onChange(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Clear</button>
    </div>
  </form>`;
}

function Field({ name, type = "text", typed, set }) {
  const id = useId();
  return html`<div>
    <label htmlFor=${id}>${LABELS[name]}</label>
    <input id=${id} name=${name} type=${type} value=${typed[name]} onChange=${(event) => set(name, event.target.value)} />
  </div>`;
}

function Verdict({ value, onPick }) {
  const id = useId();
  return html`<div>
    <label htmlFor=${id}>Verdict</label>
    <select id=${id} name="verdict" value=${value} onChange=${(event) => onPick(event.target.value)}>
      ${VERDICTS.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
    </select>
  </div>`;
}
