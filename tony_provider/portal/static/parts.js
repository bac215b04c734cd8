// The parts that pages are made of.
import { html, Link, useEffect, useId, useState } from "./html.js";

export const Page = ({ children }) => html`<div className="tony-portal">${children}</div>`;

export function Section({ title, note, className = "", children }) {
  const id = useId();
  return html`<section className=${className} aria-labelledby=${id}>
    <h2 id=${id}>${title}${note && html` <small>${note}</small>`}</h2>
    ${children}
  </section>`;
}

// What is opened by whoever wants it; nothing of it is made before.
export function Fold({ title, open = false, children }) {
  const [isOpen, setOpen] = useState(open);
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${isOpen && children()}
  </details>`;
}

// A wide table scrolls in its own frame, by keyboard too. `head`: texts, or {text, number: true}; `rows`: arrays of
// cells, the first of which names the row.
export function Table({ caption, head, rows, hideCaption = true, keys }) {
  const columns = head.map((each) => (typeof each === "object" && each !== null && "text" in each ? each : { text: each }));
  const look = (at) => (columns[at]?.number ? "number" : undefined);
  return html`<div className="wide" role="region" aria-label=${caption} tabIndex=${0}>
    <table>
      <caption className=${hideCaption ? "unseen" : undefined}>${caption}</caption>
      <thead><tr>${columns.map((each, at) => html`<th key=${at} scope="col" className=${look(at)}>${each.text}</th>`)}</tr></thead>
      <tbody>
        ${rows.map(
          (cells, row) => html`<tr key=${keys ? keys[row] : row}>
            ${cells.map((cell, at) =>
              at === 0
                ? html`<th key=${at} scope="row">${cell}</th>`
                : html`<td key=${at} className=${look(at)}>${cell}</td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

// Names and values, as a list of pairs; those without a value are left out.
export const Facts = ({ facts }) => html`<dl>
  ${facts
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

export const Loading = ({ what }) => html`<p className="soft" role="status">Loading ${what} …</p>`;

export const Problem = ({ title, text }) => html`<div className="problem" role="alert"><strong>${title}</strong> <span>${text}</span></div>`;

export const Empty = ({ children }) => html`<div className="empty">${children}</div>`;

// For screen readers: what has changed on a page that renews itself.
export const Announcement = ({ text }) => html`<p className="unseen" role="status" aria-live="polite">${text}</p>`;

const LOOKS = { SUCCEEDED: "good", FAILED: "bad", LOST: "bad", KILLED: "quiet", SUSPENDED: "quiet", STOPPED: "quiet" };

export const State = ({ state }) => html`<span className=${`badge ${LOOKS[state] ?? "busy"}`}>${state}</span>`;

export const To = ({ to, children, ...rest }) => html`<${Link} to=${to} ...${rest}>${children}<//>`;

// An address from outside: only what a browser opens as a page, whatever stands in a job's summary.
export function Outside({ address, children }) {
  if (!/^https?:\/\//i.test(address)) return html`<span>${children}: <code>${address}</code></span>`;
  return html`<a href=${address} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

// One of a few, as buttons of which one is pressed. `options`: [value, text] pairs.
export const Switch = ({ label, options, value, onChange }) => html`<div className="switch" role="group" aria-label=${label}>
  <span className="soft" aria-hidden=${true}>${label}</span>
  ${options.map(
    ([each, text]) => html`<button key=${each} type="button" aria-pressed=${each === value} onClick=${() => onChange(each)}>${text}</button>`,
  )}
</div>`;

// False until the browser has painted what is there, then true: for what stands below, and takes long to draw.
export function useAfterPaint() {
  const [painted, setPainted] = useState(false);
  useEffect(() => {
    let soon = 0;
    const frame = requestAnimationFrame(() => { soon = setTimeout(() => setPainted(true)); });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(soon);
    };
  }, []);
  return painted;
}
