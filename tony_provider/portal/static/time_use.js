// The time that a job spent in each phase, as a bar and a table.
import { duration, known, percent } from "./format.js";
import { html } from "./html.js";
import { Empty, Table } from "./parts.js";
import { PHASES } from "./states.js";

// Repeated training is part of the training time. Here, each second counts once.
export function seconds(times, key) {
  return key === "training" && known(times.training) ? Math.max(0, times.training - (times.repeated ?? 0)) : times[key];
}

export function TimeUse({ times }) {
  const phases = PHASES.map(([key, name, description]) => ({ key, name, description, seconds: seconds(times, key) }));
  const spent = phases.filter((phase) => phase.seconds > 0);
  const sum = spent.reduce((total, phase) => total + phase.seconds, 0);
  if (!sum) return html`<${Empty}>The times of the phases of this job are unknown.<//>`;
  const row = (phase) => [
    html`<i className=${`swatch phase-${phase.key}`} aria-hidden=${true}></i> ${phase.name} <small className="explained">${phase.description}</small>`,
    duration(phase.seconds),
    percent(phase.seconds, sum),
  ];
  const rows = phases.filter((phase) => phase.seconds > 0 || (phase.key === "queue" && !known(phase.seconds))).map(row);
  if (times.checkpoints > 0) rows.push([html`Checkpoints <small className="explained">stored in the background</small>`, duration(times.checkpoints), ""]);
  return html`<div>
    <div className="bar" aria-hidden=${true}>
      ${spent.map((phase) => html`<i key=${phase.key} className=${`phase-${phase.key}`} style=${{ flexGrow: phase.seconds }} title=${`${phase.name}: ${duration(phase.seconds)}`}></i>`)}
    </div>
    <${Table} caption="Time by phase" head=${["Phase", { text: "Time", number: true }, { text: "Share", number: true }]} rows=${rows} />
  </div>`;
}
