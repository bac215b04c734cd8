// The timeline of a job: a bar of its phases, and a list of its events.
import { count, duration, moment } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Empty } from "./parts.js";
import { PHASE_NAMES } from "./states.js";

const LISTED = 100; // events at a time
const LATEST = 8.64e15; // maximum milliseconds of a Date
const NAMED = 0.08; // share of the bar; a shorter phase has no room for its name

// The phase that begins with an event.
const BEGINS = {
  application: "allocation",
  requested: "allocation",
  gang_complete: "localisation",
  rendezvous: "training",
  restarting: "restarts",
  recovering: "restarts",
  suspended: "suspended",
  stopping: "end",
  verdict: "end",
};
const MARKS = { checkpoint: "checkpoint", failed: "failure", given_up: "failure", container_lost: "failure", node_loss: "failure", exported: "export" };
// Events that are always listed. The others are listed on demand.
const MAIN = new Set([...Object.keys(BEGINS), ...Object.keys(MARKS), "suspending", "resumed", "resume_chosen", "started_again", "replaced", "recovered", "smaller", "larger", "resizing", "resized", "stage", "early_end", "store_unavailable", "dropped", "memory_raised", "stalled", "not_copied", "checkpoint_refused"]);

const eventName = (event) => (event === "verdict" ? "final state" : event.replaceAll("_", " "));

const text = (value) => (typeof value === "string" ? value : "");

// Return the events that have a time. If a clock went back, `at` stays at the latest time before. `jumps` counts this.
function inOrder(events) {
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

// Return [{kind, from, until, name}] in milliseconds of the epoch.
function phases(events, beginMs, endMs) {
  const found = [];
  if (events[0].at > beginMs) found.push({ kind: "queue", from: beginMs, until: events[0].at, name: PHASE_NAMES.queue });
  const restarted = events.some((event) => event.event === "restarting");
  let generation = 0;
  const training = () => (restarted ? `${PHASE_NAMES.training} (generation ${generation})` : PHASE_NAMES.training);
  for (const event of events) {
    const open = found[found.length - 1];
    if (event.event === "started" && open?.kind === "restarts") { // a task restarted without the gang
      open.until = event.at;
      found.push({ kind: "training", from: event.at, until: endMs, name: training() });
    }
    const kind = BEGINS[event.event];
    if (!kind || (open?.kind === kind && kind !== "training") || (kind === "allocation" && open && !["queue", "suspended"].includes(open.kind))) continue;
    if (open) open.until = event.at;
    if (kind === "training") generation += 1;
    found.push({ kind, from: event.at, until: endMs, name: kind === "training" ? training() : PHASE_NAMES[kind] });
  }
  return found.filter((phase) => phase.until >= phase.from);
}

// Return the events that are always listed, and only the last of consecutive checkpoints: a long job has thousands.
function mainEvents(events) {
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

// Return at most `most` elements, evenly distributed.
const thinned = (list, most) => list.filter((_, at) => at % Math.ceil(list.length / most) === 0);

export function TimeLine({ events, submittedMs, finishedMs, running }) {
  const [everything, setEverything] = useState(false);
  const [most, setMost] = useState(LISTED);
  const { ordered, jumps } = useMemo(() => inOrder(events), [events]);
  if (!ordered.length) return html`<${Empty}>No events of this job are stored.<//>`;
  const endMs = Math.max(ordered[ordered.length - 1].at, running ? Date.now() : (finishedMs ?? 0));
  const beginMs = Math.min(ordered[0].at, submittedMs || Infinity);
  const listed = everything ? ordered : mainEvents(ordered);
  return html`<div>
    <${PhaseBar} phases=${phases(ordered, beginMs, endMs)} events=${ordered} beginMs=${beginMs} endMs=${endMs} />
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
      ${marks.map((event, at) => html`<b key=${`mark ${at}`} className=${`mark-${MARKS[event.event]}`} style=${{ left: place(event.at) }} title=${`${eventName(event.event)}: ${event.message.slice(0, 200)}`}></b>`)}
    </div>
    <figcaption className="soft"><span>${moment(beginMs, { seconds: true })}</span><span>${duration(whole / 1000)}</span><span>${moment(endMs, { seconds: true })}</span></figcaption>
  </figure>`;
}

const Event = ({ event, beginMs }) => html`<li className=${MARKS[event.event] === "failure" ? "bad" : undefined}>
  <time dateTime=${new Date(event.at).toISOString()} title=${moment(event.time_ms, { seconds: true })}>+${duration((event.time_ms - beginMs) / 1000)}</time>
  <span className="event">${eventName(event.event)}</span>
  <span className="message">${event.task && !event.message.startsWith(event.task) && html`<b>${event.task}</b> `}${event.message}${event.others && html` <small>after ${count(event.others, "earlier checkpoint")}</small>`}</span>
</li>`;
