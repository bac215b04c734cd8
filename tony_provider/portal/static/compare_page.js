// Several jobs side by side: figures, curves, specifications.
import { address, jobPath, useAllJson, useJson } from "./api.js";
import { Curves, fromSummary } from "./curves.js";
import { duration, figure, NOTHING, runDate, moment, short, shortened } from "./format.js";
import { html, useMemo } from "./html.js";
import { Fold, Loading, Problem, Section, State, Table, To } from "./parts.js";
import { toJob, toJobs } from "./routes.js";
import { ComparedResults } from "./results.js";
import { seconds } from "./time_use.js";
import { PHASES } from "./states.js";
import { Differences, SideBySide } from "./specification.js";
import { TensorBoard } from "./tensorboard.js";

const MOST = 8; // jobs

export function ComparePage({ ids: asked }) {
  const ids = asked.filter(Boolean).slice(0, MOST);
  const { data, error, loading } = useJson(address("compare", { ids: ids.join(",") }));
  return html`<div>
    <p><${To} to=${toJobs(asked.length ? { chosen: ids[0] } : {})}>← Training jobs<//></p>
    <header><h1>Comparison of ${ids.length} jobs</h1></header>
    ${asked.length > MOST && html`<p className="soft">Only the first ${MOST} of ${asked.length} jobs are compared.</p>`}
    ${loading && html`<${Loading} what="the jobs" />`}
    ${error && html`<${Problem} title="The jobs cannot be compared:" text=${error} />`}
    ${data && html`<${Comparison} ...${data} />`}
  </div>`;
}

function Comparison({ jobs, states, missing, differences, differences_of: of, reason, tensorboard }) {
  const names = useMemo(() => labels(jobs), [jobs]);
  const sources = useMemo(() => jobs.map((job, at) => fromSummary(job, names[at])), [jobs, names]);
  const heads = jobs.map((job, at) => html`<${To} to=${toJob(job.application_id)}>${names[at]}<//>`);
  return html`<div>
    ${missing.length > 0 && html`<${Problem} title="Not found, or you may not read them:" text=${missing.join(", ")} />`}
    <${Section} title="Summary"><${Figures} jobs=${jobs} states=${states} heads=${heads} /><//>
    <${Section} title="Metrics and parameters"><${ComparedResults} jobs=${jobs} heads=${heads} /><//>
    <${Section} title="Learning curves" note="of the leader of each job"><${Curves} sources=${sources} empty="None of these jobs has reported a metric." /><//>
    ${tensorboard.length > 0 && html`<${TensorBoard} commands=${tensorboard} />`}
    <${Section} title="Differences" note=${of === "fingerprints" ? "between fingerprints (hashes)" : "between specifications"}>
      ${reason && html`<${Problem} title="The specifications cannot be compared:" text=${reason} />`}
      <${Differences} caption="Differences between the jobs" differences=${differences} names=${heads} none="No differences: the jobs have the same specification." />
    <//>
    <${Section} title="Specifications"><${Fold} title="Side by side, with all defaults">${() => html`<${Specifications} jobs=${jobs} heads=${heads} />`}<//><//>
  </div>`;
}

// The shortest that tells them apart: the date, the task, or the end of the application's id.
function labels(jobs) {
  const unique = (texts) => new Set(texts).size === jobs.length && texts.every(Boolean);
  const dates = jobs.map((job) => job.run_date && runDate(job.run_date));
  const named = jobs.map((job, at) => [job.name || job.task_id, dates[at], job.map_index >= 0 ? `[${job.map_index}]` : ""].filter(Boolean).join(" "));
  const tail = (job) => job.application_id.split("_").slice(-1)[0];
  if (unique(dates)) return dates;
  if (unique(named)) return named.map((each) => shortened(each, 50));
  return named.map((each, at) => `${shortened(each, 40)} …${tail(jobs[at])}`);
}

function Figures({ jobs, states, heads }) {
  const took = (job) => (job.finished_ms ? (job.finished_ms - job.submitted_ms) / 1000 : null);
  const row = (name, value) => [name, ...jobs.map(value)];
  const rows = [
    row("State", (_, at) => html`<${State} state=${states[at]} />`),
    row("Run date", (job) => runDate(job.run_date)),
    row("Submitted", (job) => moment(job.submitted_ms)),
    row("Duration", (job) => duration(took(job))),
    ...PHASES.filter(([key]) => jobs.some((job) => seconds(job.times, key) > 0)).map(([key, name]) => row(`Phase: ${name}`, (job) => duration(seconds(job.times, key)))),
    row("Number of restarts", (job) => figure(job.restarts)),
    ...(jobs.some((job) => job.reason) ? [row("Failure", (job) => job.cause || job.reason || NOTHING)] : []),
    row("Step", (job) => figure(job.step)),
    row("Steps per second", (job) => short(job.steps_per_second)),
  ];
  return html`<${Table} caption="Summary of the jobs" head=${["Property", ...heads]} rows=${rows} />`;
}

function Specifications({ jobs, heads }) {
  const { data, loading } = useAllJson(jobs.map((job) => address(jobPath(job.application_id, "specification"))));
  const specifications = useMemo(() => (data ?? []).map((each) => each.specification ?? null), [data]);
  if (loading || !data) return html`<${Loading} what="the specifications" />`;
  const errors = data.map((each, at) => each.error && `${jobs[at].application_id}: ${each.error}`).filter(Boolean);
  return html`<div>
    ${errors.map((each) => html`<${Problem} key=${each} title="The store is unreachable:" text=${each} />`)}
    ${specifications.some(Boolean) && html`<${SideBySide} specifications=${specifications} names=${heads} />`}
  </div>`;
}
