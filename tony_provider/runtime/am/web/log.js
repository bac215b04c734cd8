(() => {
  "use strict";
  const text = document.querySelector("pre");
  const note = document.getElementById("note");
  const every = Number(document.body.dataset.every);
  const longest = 40000; // ms for one answer
  let timer = 0;

  const atEnd = () => text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
  const toEnd = () => {
    text.scrollTop = text.scrollHeight;
  };

  const refresh = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      // The URL is absolute: a relative URL would inherit a password from the page's URL, and fetch rejects passwords.
      const response = await fetch(location.origin + location.pathname + location.search, {
        headers: {Accept: "text/plain"},
        cache: "no-store",
        signal: AbortSignal.timeout(longest),
      });
      if (!response.ok || !response.headers.get("Content-Type").startsWith("text/plain")) throw new Error();
      const fresh = await response.text();
      const follow = atEnd();
      if (text.firstChild.data !== fresh) text.firstChild.data = fresh;
      if (follow) toEnd();
      note.textContent = "";
      note.className = "";
    } catch {
      note.textContent = "No answer: the task or the job may have ended. This page shows the last received output.";
      note.className = "bad";
    }
    timer = setTimeout(refresh, every * 1000);
  };

  toEnd();
  if (every) {
    document.addEventListener("visibilitychange", refresh);
    timer = setTimeout(refresh, every * 1000);
  }
})();
