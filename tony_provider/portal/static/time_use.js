// Where a job's time went: a bar, and the same in figures.
import { duration, known, percent } from "./format.js";
import { html } from "./html.js";
import { Empty, Table } from "./parts.js";

// Field, name, what it is. In the order in which a job comes to them.
const PARTS = [
  ["queue", "Queue", "until a master ran"],
  ["allocation", "Containers", "until all of the gang were there"],
  ["localisation", "Files", "until they were copied and unpacked, and the first program started"],
  ["start", "Start", "until the first step"],
  ["training", "Training", "steps that counted"],
  ["repeated", "Trained again", "steps that restarts had lost"],
  ["restarts", "Restarts", "while tasks were down: all of them, or the part of them that started again alone"],
  ["suspended", "Suspended", "no container was held or asked for"],
  ["end", "End", "stopping, and keeping what was left"],
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
  if (!sum) return html`<${Empty}>It is not known where the time of this job went.<//>`;
  const row = (part) => [
    html`<i className=${`swatch part-${part.name}`} aria-hidden=${true}></i> ${part.title} <small>${part.what}</small>`,
    duration(part.seconds),
    percent(part.seconds, sum),
  ];
  const rows = parts.filter((part) => part.seconds > 0 || (part.name === "queue" && !known(part.seconds))).map(row);
  if (times.checkpoints > 0) rows.push([html`Checkpoints <small>copied in the background</small>`, duration(times.checkpoints), ""]);
  return html`<div>
    <div className="bar" aria-hidden=${true}>
      ${there.map((part) => html`<i key=${part.name} className=${`part-${part.name}`} style=${{ flexGrow: part.seconds }} title=${`${part.title}: ${duration(part.seconds)}`}></i>`)}
    </div>
    <${Table} caption="Where the time went" head=${["Part", { text: "Time", number: true }, { text: "Share", number: true }]} rows=${rows} />
  </div>`;
}
