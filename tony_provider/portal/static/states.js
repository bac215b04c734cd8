// Colours of states and phases, the same on all pages. Their CSS classes are in portal.css.
import { html } from "./html.js";

const TONES = {
  SUCCEEDED: "good",
  FAILED: "bad", LOST: "bad",
  RUNNING: "active",
  RESTARTING: "restart", RECOVERING: "restart",
  SUSPENDED: "paused",
  KILLED: "quiet", STOPPED: "quiet", UNWATCHED: "quiet",
};
const tone = (state) => TONES[state] ?? "busy";

export const State = ({ state }) => html`<span className=${`badge ${tone(state)}`}>${state}</span>`;

// The CSS variable with the colour of a point that stands for a job in this state. Undefined for the usual colour.
export const pointColour = (state) => (state && state !== "SUCCEEDED" ? `--${tone(state)}` : undefined);

// Phases of a job in their usual order: key, name, description.
export const PHASES = [
  ["queue", "Queue", "until the application master started"],
  ["allocation", "Waiting for containers", "until YARN had allocated all containers of the gang"],
  ["localisation", "Localization", "until all files were copied and unpacked, and the first program started"],
  ["start", "Start", "until the first step"],
  ["training", "Training", "steps that no restart discarded"],
  ["repeated", "Repeated training", "steps that restarts discarded"],
  ["restarts", "Restarts", "until the first step after a restart; a restart of one task counts in proportion"],
  ["suspended", "Suspended", "without containers and requests"],
  ["end", "Finishing", "until all tasks were stopped and all files stored"],
];
export const PHASE_NAMES = Object.fromEntries(PHASES.map(([key, name]) => [key, name]));
