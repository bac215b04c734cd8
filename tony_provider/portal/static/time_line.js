// What happened in a job, in order: a bar of its phases, and the events as a list.
import { count, duration, moment } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Empty } from "./parts.js";

const LISTED = 100; // events at a time
const LATEST = 8.64e15; // milliseconds that a date can be
const NAMED = 0.08; // of the whole; a shorter phase has no room for its name

// Which phase begins with an event.
const BEGINS = {
  application: "waiting",
  requested: "waiting",
  gang_complete: "starting",
  rendezvous: "training",
  restarting: "restart",
  recovering: "restart",
  suspended: "suspended",
  stopping: "ending",
  verdict: "ending",
};
const NAMES = { waiting: "Waiting for containers", starting: "Localization", training: "Training", restart: "Restart", suspended: "Suspended", ending: "Finishing" };
const MARKS = { checkpoint: "checkpoint", failed: "failure", given_up: "failure", container_lost: "failure", node_loss: "failure", exported: "export" };
// The rest is shown on demand.
const MAIN = new Set([...Object.keys(BEGINS), ...Object.keys(MARKS), "suspending", "resumed", "resume_chosen", "started_again", "replaced", "recovered", "smaller", "larger", "resizing", "resized", "stage", "early_end", "store_unavailable", "dropped", "memory_raised", "stalled", "not_copied", "checkpoint_refused"]);

const text = (value) => (typeof value === "string" ? value : "");

// Times never go back here: clocks that jumped are held at the latest time before. `jumps`: how often they did. An event
// that says no time is left out.
function straight(events) {
  let latest = -Infinity;
  let jumps = 0;
  const dated = events.filter((event) => typeof event.time_ms === "number" && Math.abs(event.time_ms) <= LATEST);
  const ordered = dated.map((event) => {
    if (event.time_ms < latest) jumps += 1;
    latest = Math.max(latest, event.time_ms);
    return { time_ms: event.time_ms, at: latest, event: text(event.event), message: text(event.message), task: text(event.task) };
  });
  return { ordered, jumps };
}

// [{kind, from, until, name}] in milliseconds of the epoch.
function phases(events, endMs) {
  const found = [];
  const restarted = events.some((event) => event.event === "restarting");
  let generation = 0;
  const training = () => (restarted ? `Generation ${generation}` : NAMES.training);
  for (const event of events) {
    const open = found[found.length - 1];
    const alone = event.event === "started" && open?.kind === "restart"; // a task that started again without the gang
    if (alone) {
      open.until = event.at;
      found.push({ kind: "training", from: event.at, until: endMs, name: training() });
    }
    const kind = BEGINS[event.event];
    if (!kind || (open?.kind === kind && kind !== "training") || (kind === "waiting" && open && open.kind !== "suspended")) continue;
    if (open) open.until = event.at;
    if (kind === "training") generation += 1;
    found.push({ kind, from: event.at, until: endMs, name: kind === "training" ? training() : NAMES[kind] });
  }
  return found.filter((phase) => phase.until >= phase.from);
}

// What most people look for. Of checkpoints that follow one another the last: a long job has thousands.
function inShort(events) {
  const found = [];
  for (const event of events) {
    if (!MAIN.has(event.event) || !event.message) continue;
    const last = found[found.length - 1];
    const again = event.event === "checkpoint" && last?.event === "checkpoint";
    if (again) found[found.length - 1] = { ...event, others: (last.others ?? 0) + 1 };
    else found.push(event);
  }
  return found;
}

// At most so many, from all over the list.
const thinned = (list, most) => list.filter((_, at) => at % Math.ceil(list.length / most) === 0);

export function TimeLine({ events, submittedMs, finishedMs, running }) {
  const [everything, setEverything] = useState(false);
  const [most, setMost] = useState(LISTED);
  const { ordered, jumps } = useMemo(() => straight(events), [events]);
  if (!ordered.length) return html`<${Empty}>No events of this job are stored.<//>`;
  const endMs = Math.max(ordered[ordered.length - 1].at, running ? Date.now() : (finishedMs ?? 0));
  const beginMs = Math.min(ordered[0].at, submittedMs || Infinity);
  const listed = everything ? ordered : inShort(ordered);
  return html`<div>
    <${PhaseBar} phases=${phases(ordered, endMs)} events=${ordered} beginMs=${beginMs} endMs=${endMs} />
    ${jumps > 0 && html`<p className="soft">The clock went back ${jumps === 1 ? "once" : `${jumps} times`}. The bar does not move there; the list has the recorded times.</p>`}
    <p><label><input type="checkbox" checked=${everything} onChange=${(event) => setEverything(event.target.checked)} /> Show all ${ordered.length.toLocaleString("en")} events</label></p>
    <ol className="events">
      ${listed.slice(0, most).map((event, at) => html`<${Event} key=${at} event=${event} beginMs=${beginMs} />`)}
    </ol>
    ${listed.length > most && html`<button type="button" onClick=${() => setMost(most + 5 * LISTED)}>Show more (${(listed.length - most).toLocaleString("en")} left)</button>`}
  </div>`;
}

function PhaseBar({ phases: all, events, beginMs, endMs }) {
  const whole = Math.max(1, endMs - beginMs);
  const place = (ms) => `${Math.min(100, Math.max(0, (100 * (ms - beginMs)) / whole))}%`;
  const [checkpoints, others] = [true, false].map((is) => events.filter((event) => MARKS[event.event] && (event.event === "checkpoint") === is));
  const marks = [...thinned(checkpoints, 200), ...thinned(others, 200)];
  return html`<figure className="phases" role="img" aria-label=${`Phases: ${all.slice(0, 40).map((each) => `${each.name}, ${duration((each.until - each.from) / 1000)}`).join("; ")}`}>
    <div className="track">
      ${all.map((each, at) => html`<i key=${at} className=${`phase-${each.kind}`} style=${{ left: place(each.from), width: `calc(${place(beginMs + each.until - each.from)})` }}
        title=${`${each.name}: ${duration((each.until - each.from) / 1000)}`}><span>${each.until - each.from > NAMED * whole && each.name}</span></i>`)}
      ${marks.map((event, at) => html`<b key=${`mark ${at}`} className=${`mark-${MARKS[event.event]}`} style=${{ left: place(event.at) }} title=${`${event.event}: ${event.message.slice(0, 200)}`}></b>`)}
    </div>
    <figcaption className="soft"><span>${moment(beginMs, { seconds: true })}</span><span>${duration(whole / 1000)}</span><span>${moment(endMs, { seconds: true })}</span></figcaption>
  </figure>`;
}

const Event = ({ event, beginMs }) => html`<li className=${MARKS[event.event] === "failure" ? "bad" : undefined}>
  <time dateTime=${new Date(event.at).toISOString()} title=${moment(event.time_ms, { seconds: true })}>+${duration((event.time_ms - beginMs) / 1000)}</time>
  <span className="event">${event.event.replaceAll("_", " ")}</span>
  <span className="message">${event.task && !event.message.startsWith(event.task) && html`<b>${event.task}</b> `}${event.message}${event.others && html` <small>after ${count(event.others, "earlier checkpoint")}</small>`}</span>
</li>`;
