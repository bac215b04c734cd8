// The portal's data, asked of the API server that has served this page, with the user's own cookie.
import { useEffect, useState } from "./html.js";

const SECONDS = 60; // after which an answer is no longer waited for; the store has its own, shorter limit

export function address(path, query = {}) {
  const url = new URL(`tony/api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== "" && value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return url.href;
}

export const jobPath = (applicationId, ...rest) => ["jobs", applicationId, ...rest].map(encodeURIComponent).join("/");

// The answer as text. Throws an Error that says for people what is wrong.
export async function fetchText(url, signal) {
  const limit = AbortSignal.timeout(SECONDS * 1000);
  let answer;
  try {
    answer = await fetch(url, { signal: signal ? AbortSignal.any([signal, limit]) : limit, credentials: "same-origin" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error(limit.aborted ? `no answer within ${SECONDS} s` : "Airflow's API server is unreachable");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Error(explanation(answer, text));
  return text;
}

function explanation(answer, text) {
  if (answer.status === 401) return "you are not logged in, or your session has expired: reload the page";
  let said = "";
  try {
    const { detail, reason } = JSON.parse(text);
    if (reason) return reason; // of what the store or the cluster did not tell
    said = typeof detail === "string" ? detail : JSON.stringify(detail ?? "");
  } catch {
    said = text.slice(0, 300); // no JSON: a proxy's own page
  }
  if (answer.status === 404) return "not found, or you may not read it";
  return said || `the API server returned ${answer.status} ${answer.statusText}`;
}

// What stands at `url`: {data, error, loading, time}. `null` for the address asks nothing. `every`: seconds until it is
// asked again, 0 for never, or what tells them by the data, which is null before there is any; it must stay the same
// function. What was there stays until the new is there, and the same text stays the same object.
function useAnswer(url, every, read) {
  const [answer, setAnswer] = useState({ url: null });
  useEffect(() => {
    if (url === null) return undefined;
    const controller = new AbortController();
    let timer = null;
    let newest = null;
    const ask = async () => {
      try {
        const text = await fetchText(url, controller.signal);
        const data = newest = read(text);
        setAnswer((old) => ({ url, text, data: old.url === url && old.text === text ? old.data : data, time: Date.now() }));
      } catch (error) {
        if (controller.signal.aborted) return;
        setAnswer((old) => ({ ...(old.url === url ? old : { url }), error: error.message }));
      }
      const seconds = typeof every === "function" ? every(newest) : every;
      if (seconds > 0 && !controller.signal.aborted) timer = setTimeout(ask, seconds * 1000);
    };
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [url, every, read]);
  const { data = null, error = null, time = 0 } = answer.url === url ? answer : {};
  return { data, error, time, loading: url !== null && data === null && error === null };
}

const asIs = (text) => text;

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the answer is not JSON: a proxy between this page and Airflow's API server may have sent it");
  }
}

export const useText = (url, every = 0) => useAnswer(url, every, asIs);
export const useJson = (url, every = 0) => useAnswer(url, every, asJson);

// Several at once: {data: [one per address, or {error}], loading}. Asked when `urls` has become another list.
export function useAllJson(urls) {
  const [answer, setAnswer] = useState({ key: "", data: null });
  const key = urls.join("\n");
  useEffect(() => {
    if (!key) return undefined;
    const controller = new AbortController();
    const ask = (url) => fetchText(url, controller.signal).then(asJson).catch((error) => ({ error: error.message }));
    Promise.all(key.split("\n").map(ask)).then((data) => controller.signal.aborted || setAnswer({ key, data }));
    return () => controller.abort();
  }, [key]);
  const data = answer.key === key ? answer.data : null;
  return { data, loading: key !== "" && data === null };
}
