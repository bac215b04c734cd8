// Models whose training data has changed: of one job, and of all runs of a DAG, which the user can repeat.
import { address, jobPath, postJson, useJson } from "./api.js";
import { count, moment } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Fold, Loading, Problem, Section, Table } from "./parts.js";

const SHOWN = 50; // files of one model
const POLL = 10; // seconds between two checks while runs are repeated
const AT_ONCE = 10; // runs

function Files({ changes }) {
  const row = (change) => [change.uri, change.kind, change.modified_ms ? moment(change.modified_ms) : "", change.input];
  return html`<${Table} caption="Changed files" head=${["File", "Change", "Modified", "Input"]} rows=${changes.slice(0, SHOWN).map(row)} />
    ${changes.length > SHOWN && html`<p className="soft">and ${changes.length - SHOWN} more</p>`}`;
}

// Whether a job's model still matches its data.
export function TrainingData({ applicationId }) {
  const { data, error } = useJson(address(jobPath(applicationId, "data")));
  if (error) return html`<${Section} title="Training data"><p className="soft">The training data cannot be compared: ${error}</p><//>`;
  if (!data?.report) return null;
  const { state, reason, changes } = data.report;
  return html`<${Section} title="Training data">
    <p className=${state === "current" ? "good" : state === "unknown" ? "soft" : "problem"}>${state === "stale" ? `The files have changed after the training read them: ${reason}` : state === "current" ? "The files have not changed since the training read them." : `${state}: ${reason}`}</p>
    ${changes.length > 0 && html`<${Fold} title=${count(changes.length, "changed file")}>${() => html`<${Files} changes=${changes} />`}<//>`}
  <//>`;
}

const clearing = (dagId, runId) => {
  const url = new URL(`api/v2/dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(runId)}/clear`, document.baseURI);
  return postJson(url.href, { dry_run: false, only_failed: false });
};

// The stale models of a DAG. Their data are compared only on request, because this lists many directories.
export function StaleModels({ dagId }) {
  const [wanted, setWanted] = useState(false);
  const [repeating, setRepeating] = useState(null); // runs that this page has cleared
  const [busy, setBusy] = useState(false); // while requests to clear runs are sent
  const [problem, setProblem] = useState(null);
  const begun = repeating !== null;
  const { data, error, loading } = useJson(wanted ? address(`dags/${encodeURIComponent(dagId)}/stale`) : null, begun && !busy ? POLL : 0);
  useEffect(() => {
    if (!begun || busy || problem || !data) return;
    const active = data.runs.filter((run) => run.active).length;
    const ready = data.runs.filter((run) => !run.active && run.waits_for === 0 && !repeating.includes(run.run_id));
    const next = ready.slice(0, Math.max(0, AT_ONCE - active));
    if (!next.length) return;
    setRepeating([...repeating, ...next.map((run) => run.run_id)]);
    setBusy(true);
    Promise.all(next.map((run) => clearing(dagId, run.run_id)))
      .catch((failed) => setProblem(failed.message))
      .finally(() => setBusy(false));
  }, [data, begun]); // once for each answer
  const row = ({ lineage, training, state, reason }) => [lineage?.labels.run_id ?? training, state, reason];
  return html`<${Section} title="Models and their data">
    ${!wanted && html`<p><button type="button" onClick=${() => setWanted(true)}>Compare the models with their data</button></p>`}
    ${loading && html`<${Loading} what="the data of the models" />`}
    ${error && html`<${Problem} title="The data cannot be compared:" text=${error} />`}
    ${problem && html`<${Problem} title="A run cannot be repeated:" text=${problem} />`}
    ${data && html`<div>
      ${data.missing.map((text) => html`<${Problem} title="Some models cannot be compared:" text=${text} />`)}
      <p role="status">${Object.entries(data.states).map(([state, number]) => `${number} ${state}`).join(", ") || "No model of this DAG has a record of its data."}</p>
      ${data.models.length > 0 && html`<${Table} caption="Models that are not current" head=${["Run", "State", "Reason"]} rows=${data.models.map(row)} />`}
      ${data.runs.length > 0 && !begun && html`<p><button type="button" onClick=${() => setRepeating([])}>Repeat ${count(data.runs.length, "run")}</button> <span className="soft">A run is cleared after the runs whose models it starts from. Keep this page open, because it clears the runs.</span></p>`}
      ${begun && html`<p role="status">${data.runs.length ? `${count(repeating.length, "run")} cleared; ${count(data.runs.length, "run")} with stale models left` : "All models are current or unknown."}</p>`}
    </div>`}
  <//>`;
}
