// The query of the page's URL, which contains the user's selections.
import { useEffect, useSearchParams, useState } from "./html.js";

const current = () => new URLSearchParams(window.location.search);

// Return [query, set]. `set` takes a function that returns the new query for the old one. With `replace`, the URL changes
// without Airflow's router, which would build the whole page again and move the keyboard focus.
export function useQuery() {
  const [routed, navigate] = useSearchParams();
  const [query, setQuery] = useState(current);
  // Also after the browser's back button. An equal query keeps the same object, so that nothing is drawn again.
  useEffect(() => setQuery((old) => (String(old) === String(current()) ? old : current())), [routed]);
  const set = (change, { replace = false } = {}) => {
    const next = change(current());
    if (replace) window.history.replaceState(window.history.state, "", `${window.location.pathname}?${next}`);
    else navigate(next);
    setQuery(next);
  };
  return [query, set];
}
