// Components that several pages use.
import { html, Link, useEffect, useId, useState } from "./html.js";

export { State } from "./states.js";

export const Page = ({ children }) => html`<div className="tony-portal">${children}</div>`;

export function Section({ title, note, className = "", children }) {
  const id = useId();
  return html`<section className=${className} aria-labelledby=${id}>
    <h2 id=${id} tabIndex=${-1}>${title}${note && html` <small>${note}</small>`}</h2>
    ${children}
  </section>`;
}

// Buttons that lead to the sections of a long page, by their titles.
export function Contents({ titles }) {
  const show = (title) => {
    const heading = [...document.querySelectorAll(".tony-portal section > h2")].find((each) => each.textContent.startsWith(title));
    heading?.scrollIntoView();
    heading?.focus({ preventScroll: true });
  };
  return html`<nav className="contents" aria-label="Sections of this page">
    ${titles.map((title) => html`<button key=${title} type="button" onClick=${() => show(title)}>${title}</button>`)}
  </nav>`;
}

// A disclosure, whose children are created when it is opened.
export function Fold({ title, open = false, children }) {
  const [isOpen, setOpen] = useState(open);
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${title}</summary>
    ${isOpen && children()}
  </details>`;
}

// A table that scrolls in its own frame, also with the keyboard. `head`: texts, or {text, number: true}. `rows`: arrays
// of cells, and the first cell is the row's header.
export function Table({ caption, head, rows, hideCaption = true, keys }) {
  const columns = head.map((each) => (typeof each === "object" && each !== null && "text" in each ? each : { text: each }));
  const look = (at) => (columns[at]?.number ? "number" : undefined);
  return html`<div className="wide" role="group" aria-label=${caption} tabIndex=${0}>
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

// A list of names and values, without the pairs that have no value. A third element `true` gives the pair its own line.
export const Facts = ({ facts }) => html`<dl>
  ${facts
    .filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "")
    .map(([name, value, long]) => html`<div key=${name} className=${long ? "long" : undefined}><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

export const Loading = ({ what }) => html`<p className="soft" role="status">Loading ${what} …</p>`;

export const Problem = ({ title, text }) => html`<div className="problem" role="alert"><strong>${title}</strong> <span>${text}</span></div>`;

export function Warnings({ title, warnings }) {
  if (!warnings.length) return null;
  return html`<${Section} title=${title} className="warnings"><ul>${warnings.slice(0, 50).map((each, at) => html`<li key=${at}>${each}</li>`)}</ul><//>`;
}

export const Empty = ({ children }) => html`<div className="empty">${children}</div>`;

// A text that screen readers read when it changes.
export const Announcement = ({ text }) => html`<p className="unseen" role="status" aria-live="polite">${text}</p>`;

export const To = ({ to, children, ...rest }) => html`<${Link} to=${to} ...${rest}>${children}<//>`;

// A link to an address from a job's summary, which is untrusted: only http and https addresses become links.
export function Outside({ address, children }) {
  if (!/^https?:\/\//i.test(address)) return html`<span>${children}: <code>${address}</code></span>`;
  return html`<a href=${address} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

// A choice between a few options, as toggle buttons. `options`: [value, text] pairs.
export const Switch = ({ label, options, value, onChange }) => html`<div className="switch" role="group" aria-label=${label}>
  <span className="soft" aria-hidden=${true}>${label}</span>
  ${options.map(
    ([each, text]) => html`<button key=${each} type="button" aria-pressed=${each === value} onClick=${() => onChange(each)}>${text}</button>`,
  )}
</div>`;

// Return whether the browser has painted the page once. Slow parts further down can wait for this.
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
