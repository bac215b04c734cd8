// Where a job's time went: a bar, and the same in figures.
import { duration, known, percent } from "./format.js";
import { html } from "./html.js";
import { Empty, Table } from "./parts.js";

// Field, name, what it is. In the order in which a job comes to them.
const PARTS = [
  ["queue", "Queue", "until an application master ran"],
  ["allocation", "Containers", "until the gang had all its containers"],
  ["localisation", "Localization", "until files were copied and unpacked, and the first program started"],
  ["start", "Start", "until the first step"],
  ["training", "Training", "steps that no restart has lost"],
  ["repeated", "Repeated training", "steps that restarts had lost"],
  ["restarts", "Restarts", "until the first step after a restart; a single task counts by its share"],
  ["suspended", "Suspended", "no containers and no requests"],
  ["end", "Finishing", "stopping tasks and storing files"],
];

// What was trained twice is part of the training; here each second counts once.
function seconds(times, name) {
  if (name === "training") return Math.max(0, (times.training ?? 0) - (times.repeated ?? 0));
  return times[name];
}

export function TimeUse({ times }) {
  const parts = PARTS.map(([name, title, what]) => ({ name, title, what, seconds: seconds(times, name) }));
  const there = parts.filter((part) => part.seconds > 0);
  const sum = there.reduce((total, part) => total + part.seconds, 0);
  if (!sum) return html`<${Empty}>The times of the phases of this job are unknown.<//>`;
  const row = (part) => [
    html`<i className=${`swatch part-${part.name}`} aria-hidden=${true}></i> ${part.title} <small>${part.what}</small>`,
    duration(part.seconds),
    percent(part.seconds, sum),
  ];
  const rows = parts.filter((part) => part.seconds > 0 || (part.name === "queue" && !known(part.seconds))).map(row);
  if (times.checkpoints > 0) rows.push([html`Checkpoints <small>stored in the background</small>`, duration(times.checkpoints), ""]);
  return html`<div>
    <div className="bar" aria-hidden=${true}>
      ${there.map((part) => html`<i key=${part.name} className=${`part-${part.name}`} style=${{ flexGrow: part.seconds }} title=${`${part.title}: ${duration(part.seconds)}`}></i>`)}
    </div>
    <${Table} caption="Time by phase" head=${["Phase", { text: "Time", number: true }, { text: "Share", number: true }]} rows=${rows} />
  </div>`;
}
