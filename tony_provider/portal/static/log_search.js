// The search within a log: its field, and the text with the matches marked.
import { html, useId, useMemo, useState } from "./html.js";
import { count } from "./format.js";

const MATCHES = 1000; // limit of matches that are marked

// Return the parts of the text, in which every second part is a match. The search ignores case.
function split(text, wanted) {
  const parts = [];
  let from = 0;
  if (wanted) {
    const pattern = new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
    for (const { 0: found, index } of text.matchAll(pattern)) {
      if (parts.length >= 2 * MATCHES) break;
      parts.push(text.slice(from, index), found);
      from = index + found.length;
    }
  }
  return [...parts, text.slice(from)];
}

// The state of a search: {text, parts, matches, current, find, move}.
export function useMatches(log) {
  const [text, setText] = useState("");
  const [place, setPlace] = useState(0);
  const parts = useMemo(() => split(log, text), [log, text]);
  const matches = (parts.length - 1) / 2;
  const current = matches ? Math.min(place, matches - 1) : 0;
  const find = (wanted) => {
    setText(wanted);
    setPlace(0);
  };
  const move = (by) => setPlace(matches ? (current + by + matches) % matches : 0);
  return { text, parts, matches, current, find, move };
}

// `onFind` is called when the search selects a match.
export function LogSearch({ text, matches, current, find, move, onFind }) {
  const field = useId();
  const step = (by) => {
    onFind();
    move(by);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? -1 : 1);
  };
  const found = matches ? `${(current + 1).toLocaleString("en")} of ${count(matches, "match", "matches")}${matches === MATCHES ? " or more" : ""}` : "no matches";
  return html`<div className="log-search" role="search" aria-label="Search the displayed output">
    <label htmlFor=${field} className="unseen">Search the displayed output</label>
    <input id=${field} type="search" value=${text} placeholder="Search the displayed output" onKeyDown=${onKeyDown}
      onChange=${(event) => { onFind(); find(event.target.value); }} />
    ${text && html`<span role="status" className="soft">${found}</span>
      <button type="button" disabled=${!matches} onClick=${() => step(-1)}>Previous</button>
      <button type="button" disabled=${!matches} onClick=${() => step(1)}>Next</button>`}
  </div>`;
}

export const Marked = ({ parts, current }) => parts.map((part, at) => (at % 2 === 0 ? part : html`<mark key=${at} aria-current=${(at - 1) / 2 === current ? "true" : undefined}>${part}</mark>`));
