// Requests to the portal's API, on the API server that serves this page, with the user's cookie.
import { useEffect, useState } from "./html.js";

const SECONDS = 60; // timeout of a request; the store has its own, shorter timeout

// The connection whose jobs without a DAG the page shows, or null for the jobs of DAGs.
export const connectionId = () => new URLSearchParams(window.location.search).get("conn_id");

export function address(path, query = {}) {
  const url = new URL(`tony/api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries({ conn_id: connectionId(), ...query })) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) url.searchParams.append(name, each);
  }
  return url.href;
}

export const jobPath = (applicationId, ...rest) => ["jobs", applicationId, ...rest].map(encodeURIComponent).join("/");

// Return the response as text. Throws an Error whose message is for users.
export async function fetchText(url, signal, options = {}) {
  const limit = AbortSignal.timeout(SECONDS * 1000);
  let answer;
  try {
    answer = await fetch(url, { signal: signal ? AbortSignal.any([signal, limit]) : limit, credentials: "same-origin", ...options });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error(limit.aborted ? `no response within ${SECONDS} s` : "Airflow's API server is unreachable");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Error(explanation(answer, text));
  return text;
}

function explanation(answer, text) {
  if (answer.status === 401) return "you are not logged in, or your session has expired: reload the page";
  let message = "";
  try {
    const { detail, reason } = JSON.parse(text);
    if (reason) return reason; // why the store or the cluster did not answer
    message = typeof detail === "string" ? detail : JSON.stringify(detail ?? "");
  } catch {
    message = text.slice(0, 300); // no JSON, such as an error page of a proxy
  }
  if (answer.status === 404) return "not found, or you may not read it";
  return message || `the API server returned ${answer.status} ${answer.statusText}`;
}

// Fetch `url` and return {data, error, loading, time}. A null `url` fetches nothing. `every`: seconds until the next
// request, 0 for none, or a function that returns them for the data, which is null at first; the function must stay the
// same object. The old data stay until new data arrive, and an unchanged response keeps the same object.
function useAnswer(url, every, read) {
  const [answer, setAnswer] = useState({ url: null });
  useEffect(() => {
    if (url === null) return undefined;
    const controller = new AbortController();
    let timer = null;
    let newest = null;
    const load = async () => {
      try {
        const text = await fetchText(url, controller.signal);
        const data = newest = read(text);
        setAnswer((old) => ({ url, text, data: old.url === url && old.text === text ? old.data : data, time: Date.now() }));
      } catch (error) {
        if (controller.signal.aborted) return;
        setAnswer((old) => ({ ...(old.url === url ? old : { url }), error: error.message }));
      }
      const seconds = typeof every === "function" ? every(newest) : every;
      if (seconds > 0 && !controller.signal.aborted) timer = setTimeout(load, seconds * 1000);
    };
    load();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [url, every, read]);
  const { data = null, error = null, time = 0 } = answer.url === url ? answer : {};
  return { data, error, time, loading: url !== null && data === null && error === null };
}

// Send JSON, and return the answer.
export async function postJson(url, body) {
  const headers = { "Content-Type": "application/json" };
  return asJson(await fetchText(url, undefined, { method: "POST", headers, body: JSON.stringify(body) }));
}

const asIs = (text) => text;

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the response is not JSON: a proxy between this page and Airflow's API server may have sent it");
  }
}

export const useText = (url, every = 0) => useAnswer(url, every, asIs);
export const useJson = (url, every = 0) => useAnswer(url, every, asJson);

// Fetch several URLs and return {data: [the data or {error} for each URL], loading}.
export function useAllJson(urls) {
  const [answer, setAnswer] = useState({ key: "", data: null });
  const key = urls.join("\n");
  useEffect(() => {
    if (!key) return undefined;
    const controller = new AbortController();
    const load = (url) => fetchText(url, controller.signal).then(asJson).catch((error) => ({ error: error.message }));
    Promise.all(key.split("\n").map(load)).then((data) => controller.signal.aborted || setAnswer({ key, data }));
    return () => controller.abort();
  }, [key]);
  const data = answer.key === key ? answer.data : null;
  return { data, loading: key !== "" && data === null };
}
