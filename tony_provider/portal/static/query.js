// What is chosen on a page, as it stands in the address.
import { useEffect, useSearchParams, useState } from "./html.js";

const standing = () => new URLSearchParams(window.location.search);

// [query, set]: `set` takes what makes the new query of the old one. With `replace` the address changes without Airflow's
// router: that makes the whole page anew, and whoever uses a keyboard would lose their place.
export function useQuery() {
  const [routed, navigate] = useSearchParams();
  const [query, setQuery] = useState(standing);
  // Also when the browser went back; the same query stays the same object, and nothing is drawn again.
  useEffect(() => setQuery((old) => (String(old) === String(standing()) ? old : standing())), [routed]);
  const set = (change, { replace = false } = {}) => {
    const next = change(standing());
    if (replace) window.history.replaceState(window.history.state, "", `${window.location.pathname}?${next}`);
    else navigate(next);
    setQuery(next);
  };
  return [query, set];
}
