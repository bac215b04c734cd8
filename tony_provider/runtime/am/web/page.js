(() => {
  "use strict";
  // Without a final slash in the address, all relative links would lead to YARN's own pages.
  if (!location.pathname.endsWith("/")) {
    history.replaceState(null, "", location.pathname + "/" + location.search + location.hash);
  }
  const main = document.querySelector("main");
  const note = document.getElementById("note");
  const longest = 20000; // ms for one answer
  let every = Number(document.body.dataset.every);
  let timer = 0;

  // Updates only changed nodes, so that the user's selection, open elements and scroll positions stay.
  const follow = (old, fresh) => {
    if (old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const {name} of [...old.attributes]) {
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const {name, value} of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const now = [...old.childNodes];
    const then = [...fresh.childNodes];
    then.forEach((child, at) => (at < now.length ? follow(now[at], child) : old.append(child)));
    now.slice(then.length).forEach((child) => child.remove());
  };

  const show = (answer) => {
    document.title = answer.title;
    for (const [id, html] of Object.entries(answer.sections)) {
      const old = document.getElementById(id);
      const fresh = old.cloneNode(false);
      fresh.innerHTML = html; // safe, because the server has escaped the values
      follow(old, fresh);
    }
    note.textContent = answer.note;
    note.className = main.className = "";
    every = answer.every;
  };

  const refresh = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      // The URL is absolute: a relative URL would inherit a password from the page's URL, and fetch rejects passwords.
      const response = await fetch(location.origin + location.pathname + "sections" + location.search, {
        headers: {Accept: "application/json"},
        cache: "no-store",
        signal: AbortSignal.timeout(longest),
      });
      if (!response.ok || !response.headers.get("Content-Type").startsWith("application/json")) throw new Error();
      show(await response.json());
    } catch {
      note.textContent = "No answer from the application master: the job may have ended. This page shows the last received "
        + "status. Reload the page to check.";
      note.className = "bad";
      main.className = "old";
    }
    if (every) timer = setTimeout(refresh, every * 1000);
  };

  document.addEventListener("visibilitychange", refresh);
  if (every) timer = setTimeout(refresh, every * 1000);
})();
