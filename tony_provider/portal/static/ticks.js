// Scales of chart axes: {write, ticks, steps}. `write` formats one value. `ticks` formats all ticks of an axis, so that
// no two ticks have the same text. `steps` lists the allowed distances between ticks; uPlot chooses them if it is absent.
import { bytes, duration, figure, short, UNITS } from "./format.js";

const MOST_PLACES = 9;
const WHOLE_STEPS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].flatMap((power) => [1, 2, 5].map((first) => first * 10 ** power));
const BYTE_STEPS = Array.from({ length: 60 }, (_, at) => 2 ** at);
const DURATION_STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30]
  .concat([1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60))
  .concat([1, 2, 3, 6, 12].map((hours) => hours * 3600))
  .concat([1, 2, 5, 10, 20, 50, 100, 1000].map((days) => days * 86400));

const distance = (ticks) => (ticks.length > 1 ? Number((ticks[1] - ticks[0]).toPrecision(6)) : 0);
const largest = (ticks) => Math.max(0, ...ticks.map(Math.abs));
const distinct = (texts) => texts.map((text, at) => (texts.indexOf(text) === at ? text : ""));

// The number of decimal places that a distance needs, such as 2 for 0.25.
function places(step) {
  for (let count = 0; count < MOST_PLACES; count += 1) {
    const shifted = step * 10 ** count;
    if (Math.abs(shifted - Math.round(shifted)) < 1e-4 * shifted) return count;
  }
  return MOST_PLACES;
}

function numberTicks(ticks) {
  const [step, most] = [distance(ticks), largest(ticks)];
  if (!step) return ticks.map(figure);
  if (most >= 1e9 || most < 1e-3) {
    const count = Math.max(0, Math.ceil(Math.log10(most / step)));
    return distinct(ticks.map((value) => (value === 0 ? "0" : value.toExponential(Math.min(count, MOST_PLACES)))));
  }
  const digits = { minimumFractionDigits: places(step), maximumFractionDigits: places(step) };
  return distinct(ticks.map((value) => value.toLocaleString("en", digits)));
}

// All ticks of an axis use the same unit.
function byteTicks(ticks) {
  const at = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(largest(ticks) || 1) / 10)));
  const size = 1024 ** at;
  const count = Math.min(3, places(distance(ticks) / size));
  return distinct(ticks.map((value) => (value === 0 ? "0" : `${(value / size).toFixed(count)} ${UNITS[at]}`)));
}

// Ticks have all units down to that of their distance, without zeros: "1 h", "1 h 5 min", "1 h 5 min 30 s".
function durationTicks(ticks) {
  const step = distance(ticks);
  if (step < 1) return distinct(ticks.map(duration));
  const text = (seconds) => {
    let rest = Math.round(Math.abs(seconds));
    const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].map(([size, unit]) => {
      const count = Math.floor(rest / size);
      rest -= count * size;
      return count ? `${count} ${unit}` : "";
    });
    return (seconds < 0 ? "−" : "") + (parts.filter(Boolean).join(" ") || "0");
  };
  return distinct(ticks.map(text));
}

const withUnit = (ticks, unit) => (values) => ticks(values).map((text) => (text && text !== "0" ? `${text}${unit}` : text));
const perCent = 0.01;

export const NUMBER = { write: figure, ticks: numberTicks };
export const COUNT = { write: figure, ticks: numberTicks, steps: WHOLE_STEPS };
export const SPEED = { write: short, ticks: numberTicks };
export const BYTES = { write: bytes, ticks: byteTicks, steps: BYTE_STEPS };
export const BYTE_RATE = { write: (value) => `${bytes(value)}/s`, ticks: withUnit(byteTicks, "/s"), steps: BYTE_STEPS };
export const PERCENT = { write: (value) => `${short(value)} %`, ticks: withUnit(numberTicks, " %") };
export const CORES = { write: (value) => short(value * perCent), ticks: (ticks) => numberTicks(ticks.map((value) => value * perCent)) };
export const DURATION = { write: duration, ticks: durationTicks, steps: DURATION_STEPS };
