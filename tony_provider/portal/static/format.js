// How figures, times and sizes are written for people. What is not known is a dash, never a zero.

export const NOTHING = "–";

// Made once: to make one takes a browser longer than to write thirty numbers.
const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const LONG = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });

export const known = (value) => value !== null && value !== undefined;

// A number that may come as "NaN", "Infinity" or "-Infinity", since JSON has no such.
export function numeric(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;
}

// For a chart: null, a gap, where there is no finite number.
export function drawable(value) {
  const number = numeric(value);
  return Number.isFinite(number) ? number : null;
}

export function figure(value) {
  if (!known(value)) return NOTHING;
  const number = numeric(value);
  if (!Number.isFinite(number)) return String(value);
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return number.toExponential(3);
  if (Number.isInteger(number)) return WHOLE.format(number);
  return (size >= 1000 ? LONG : SHORT).format(number);
}

export function duration(seconds) {
  if (!known(seconds) || !Number.isFinite(seconds)) return NOTHING;
  const sign = seconds < 0 ? "−" : "";
  const left = Math.abs(seconds);
  if (left < 10) return `${sign}${left.toFixed(left < 1 && left > 0 ? 2 : 1).replace(/\.0+$/, "")} s`;
  if (left < 60) return `${sign}${Math.round(left)} s`;
  const minutes = Math.round(left / 60);
  if (left < 3600) return `${sign}${Math.floor(left / 60)} min ${Math.floor(left % 60)} s`;
  if (minutes < 1440) return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${sign}${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function bytes(value) {
  if (!known(value)) return NOTHING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let number = value;
  let at = 0;
  while (Math.abs(number) >= 1024 && at < units.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${at === 0 || number >= 100 ? Math.round(number) : number.toFixed(1).replace(/\.0$/, "")} ${units[at]}`;
}

// Between which numbers the ticks of a chart are, so that what stands at them is short.
export const BYTE_STEPS = Array.from({ length: 60 }, (_, at) => 2 ** at);
export const DURATION_STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30]
  .concat([1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60))
  .concat([1, 2, 3, 6, 12].map((hours) => hours * 3600))
  .concat([1, 2, 5, 10, 20, 50, 100, 1000].map((days) => days * 86400));

export const percent = (part, whole) => (whole > 0 && known(part) ? `${Math.round((100 * part) / whole)} %` : NOTHING);

const two = (number) => String(number).padStart(2, "0");

export function day(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

// In the browser's time zone, which `ZONE` names.
export function moment(epochMs, { seconds = false } = {}) {
  if (!epochMs) return NOTHING;
  const date = new Date(epochMs);
  if (Number.isNaN(date.getTime())) return NOTHING;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return `${day(date)} ${time}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

// The date of a run, as Airflow writes it: in UTC, without its time where that is midnight.
export function runDate(text) {
  if (!text) return NOTHING;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const written = date.toISOString();
  return written.slice(11, 16) === "00:00" ? written.slice(0, 10) : `${written.slice(0, 10)} ${written.slice(11, 16)}`;
}

export const count = (number, word, plural = `${word}s`) => `${number.toLocaleString("en")} ${number === 1 ? word : plural}`;

// worker:2 before worker:10.
export const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });

export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
