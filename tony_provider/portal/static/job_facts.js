// Facts about a job: its summary, and the run that it belongs to.
import { Command } from "./command.js";
import { duration, figure, known, moment, NOTHING, runDate, short } from "./format.js";
import { html } from "./html.js";
import { Facts, Outside, To } from "./parts.js";
import { toDates, toRun, toTaskInstance } from "./routes.js";

export function JobSummary({ summary, running }) {
  const until = summary.finished_ms ?? (running ? Date.now() : null);
  const step = known(summary.step) ? `${figure(summary.step)}${known(summary.total_steps) ? ` of ${figure(summary.total_steps)}` : ""}` : null;
  return html`<${Facts} facts=${[
    ["Submitted", moment(summary.submitted_ms, { seconds: true })],
    ["Finished", summary.finished_ms ? moment(summary.finished_ms, { seconds: true }) : null],
    ["Duration", until && duration((until - summary.submitted_ms) / 1000)],
    ["Step", step],
    ["Steps per second", known(summary.steps_per_second) ? short(summary.steps_per_second) : null],
    ["Restarts", figure(summary.restarts)],
    ["Resumed from step", known(summary.resumed_step) ? figure(summary.resumed_step) : null],
    ["Newest checkpoint", known(summary.checkpoint_step) ? `step ${figure(summary.checkpoint_step)}` : null],
  ]} />`;
}

export function JobRun({ summary }) {
  const mapped = summary.map_index >= 0 ? ` [${summary.map_index}]` : "";
  const task = html`${summary.task_id}${mapped}`;
  const ofDag = Boolean(summary.dag_id);
  return html`<${Facts} facts=${[
    ["DAG", ofDag && html`<${To} to=${toDates(summary.dag_id)}>${summary.dag_id}<//>`],
    ["Run ID", ofDag ? html`<${To} to=${toRun(summary)}>${summary.run_id}<//>` : summary.run_id, true],
    ["Run date", ofDag && runDate(summary.run_date)],
    ["Task", ofDag ? html`<${To} to=${toTaskInstance(summary)}>${task}<//>` : task],
    ["Try", ofDag && figure(summary.try_number)],
    ["User", summary.proxy_user ? `${summary.user} (for ${summary.proxy_user})` : summary.user || NOTHING],
    ["Queue", summary.queue || NOTHING],
    ["Framework", summary.framework],
    ["Connection", summary.tony_conn_id],
    ["Directory", html`<${Command} text=${summary.application_dir} label="Directory of the job" />`, true],
    ...Object.entries(summary.links).map(([name, link]) => [name, html`<${Outside} address=${link}>Open<//>`]),
  ]} />`;
}
