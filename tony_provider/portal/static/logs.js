// The output of the tasks of a job, with a search, and with the newest output while the job runs.
import { address, jobPath, useJson, useText } from "./api.js";
import { Choice } from "./choice.js";
import { bytes, byName } from "./format.js";
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { LogSearch, Marked, useMatches } from "./log_search.js";
import { Empty, Loading, Problem } from "./parts.js";

const TAILS = [1 << 16, 1 << 20]; // bytes
const REFRESH = 5; // seconds, while the job runs
const NEAR = 8; // pixels from the end that still count as the end

// `running`: the tasks of a running job, whose output its application master returns. Empty if the job has ended.
export function Logs({ applicationId, running, preferred }) {
  const { data, error, loading } = useJson(address(jobPath(applicationId, "logs")));
  const [task, setTask] = useState(null);
  if (loading) return html`<${Loading} what="the list of logs" />`;
  if (error) return html`<${Problem} title="The logs cannot be listed:" text=${error} />`;
  const tasks = [...new Set([...data.logs.map((each) => each.task), ...running])].sort(byName);
  if (!tasks.length) return html`<${Empty}>The store has no logs of this job.<//>`;
  const current = task ?? (tasks.includes(preferred) ? preferred : tasks[0]);
  return html`<div>
    ${tasks.length > 1 && html`<${Choice} title="Task" word="task" names=${tasks} chosen=${[current]} single=${true} onChange=${([name]) => setTask(name)} />`}
    <${Log} key=${current} applicationId=${applicationId} task=${current} running=${running.length > 0} />
  </div>`;
}

function Log({ applicationId, task, running }) {
  const [tail, setTail] = useState(TAILS[0]);
  const [follow, setFollow] = useState(true); // scroll to new output
  const { data, error, loading } = useText(address(jobPath(applicationId, "logs", task), { tail }), running ? REFRESH : 0);
  const search = useMatches(data ?? "");
  const frame = useRef(null);
  const box = useId();
  useEffect(() => {
    if (follow && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [data, follow]);
  useEffect(() => {
    const match = frame.current?.querySelector("[aria-current]");
    if (match) frame.current.scrollTop = match.offsetTop - frame.current.clientHeight / 2;
  }, [search.text, search.current]);
  if (loading) return html`<${Loading} what=${`the log of ${task}`} />`;
  if (error && data === null) return html`<${Problem} title=${`The log of ${task} cannot be read:`} text=${error} />`;
  const onScroll = ({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => setFollow(scrollTop + clientHeight >= scrollHeight - NEAR);
  const isCut = data.startsWith("… earlier output is left out\n"); // CUT in portal/job_views.py
  return html`<div>
    <div className="log-bar">
      <${LogSearch} ...${search} onFind=${() => setFollow(false)} />
      ${running && html`<label htmlFor=${box}><input id=${box} type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> Follow new output</label>`}
    </div>
    ${error && html`<${Problem} title="The log cannot be refreshed:" text=${error} />`}
    ${isCut && html`<p className="soft">The last ${bytes(tail)} of the log. ${tail < TAILS[1] && html`<button type="button" onClick=${() => setTail(TAILS[1])}>Show ${bytes(TAILS[1])}</button>`}</p>`}
    <pre ref=${frame} className="log" tabIndex=${0} role="region" aria-label=${`Log of ${task}`} onScroll=${onScroll}>${data ? html`<${Marked} ...${search} />` : "The task has printed no output."}</pre>
  </div>`;
}
