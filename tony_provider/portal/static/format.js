// Formats of numbers, times and sizes. An unknown value is a dash, never a zero.

export const NOTHING = "–";

// Created once, because creating a formatter is much slower than formatting.
const WHOLE = new Intl.NumberFormat("en");
const BRIEF = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const LONG = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });

export const known = (value) => value !== null && value !== undefined;

// Convert a number from JSON, which has "NaN", "Infinity" and "-Infinity" as texts.
export function numeric(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;
}

// Return the number for a chart, or null (a gap) if it is not finite.
export function drawable(value) {
  const number = numeric(value);
  return Number.isFinite(number) ? number : null;
}

const written = (value, format) => {
  if (!known(value)) return NOTHING;
  const number = numeric(value);
  if (!Number.isFinite(number)) return String(value);
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return number.toExponential(3);
  return (Number.isInteger(number) ? WHOLE : format(size)).format(number);
};

export const figure = (value) => written(value, (size) => (size >= 1000 ? LONG : SHORT));

// Three significant digits, for measured rates and means.
export const short = (value) => written(value, (size) => (size >= 1000 ? WHOLE : BRIEF));

// Resource hours. The digits of a very short job would only be noise.
export function hours(value) {
  if (!known(value)) return NOTHING;
  if (value > 0 && value < 0.01) return "< 0.01";
  return Number(value).toLocaleString("en", value < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 1 });
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

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  if (!known(value)) return NOTHING;
  let number = value;
  let at = 0;
  while (Math.abs(number) >= 1024 && at < UNITS.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${at === 0 || number >= 100 ? Math.round(number) : number.toFixed(1).replace(/\.0$/, "")} ${UNITS[at]}`;
}

export const percent = (part, whole) => (whole > 0 && known(part) ? `${Math.round((100 * part) / whole)} %` : NOTHING);

const two = (number) => String(number).padStart(2, "0");

export function day(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

// In the browser's time zone, whose name is `ZONE`.
export function moment(epochMs, { seconds = false } = {}) {
  if (!epochMs) return NOTHING;
  const date = new Date(epochMs);
  if (Number.isNaN(date.getTime())) return NOTHING;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return `${day(date)} ${time}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

// The date of a run in UTC, as Airflow writes it, without the time if it is midnight.
export function runDate(text) {
  if (!text) return NOTHING;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const utc = date.toISOString();
  return utc.slice(11, 16) === "00:00" ? utc.slice(0, 10) : `${utc.slice(0, 10)} ${utc.slice(11, 16)}`;
}

export const count = (number, word, plural = `${word}s`) => `${number.toLocaleString("en")} ${number === 1 ? word : plural}`;

// Sorts worker:2 before worker:10.
export const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });

export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
