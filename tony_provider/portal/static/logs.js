// What the tasks of a job have printed, from the store.
import { address, jobPath, useJson, useText } from "./api.js";
import { Choice } from "./choice.js";
import { bytes, byName } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Empty, Loading, Problem } from "./parts.js";

const TAILS = [1 << 16, 1 << 20]; // bytes

// `running`: the tasks of a job that runs, which its master may be asked for; none of one that has ended.
export function Logs({ applicationId, running, preferred }) {
  const { data, error, loading } = useJson(address(jobPath(applicationId, "logs")));
  const [task, setTask] = useState(null);
  if (loading) return html`<${Loading} what="the list of logs" />`;
  if (error) return html`<${Problem} title="The store is unreachable:" text=${error} />`;
  const tasks = [...new Set([...data.logs.map((each) => each.task), ...running])].sort(byName);
  if (!tasks.length) return html`<${Empty}>No logs of this job are stored.<//>`;
  const current = task ?? (tasks.includes(preferred) ? preferred : tasks[0]);
  return html`<div>
    <${Choice} title="Task" word="task" names=${tasks} chosen=${[current]} single=${true} onChange=${([name]) => setTask(name)} />
    <${Log} key=${current} applicationId=${applicationId} task=${current} running=${running.length > 0} />
  </div>`;
}

function Log({ applicationId, task, running }) {
  const [tail, setTail] = useState(TAILS[0]);
  const { data, error, loading } = useText(address(jobPath(applicationId, "logs", task), { tail }), running ? 10 : 0);
  const frame = useRef(null);
  useEffect(() => {
    if (frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [data]);
  if (loading) return html`<${Loading} what=${`the log of ${task}`} />`;
  if (error && data === null) return html`<${Problem} title=${`The log of ${task}:`} text=${error} />`;
  const cut = data.startsWith("… earlier output is left out\n"); // as in portal/job_views.py
  return html`<div>
    ${cut && html`<p className="soft">The last ${bytes(tail)} of the log. ${tail < TAILS[1] && html`<button type="button" onClick=${() => setTail(TAILS[1])}>Show ${bytes(TAILS[1])}</button>`}</p>`}
    <pre ref=${frame} className="log" tabIndex=${0} role="region" aria-label=${`Log of ${task}`}>${data || "The task has printed no output."}</pre>
  </div>`;
}
