// How the pages write HTML: Airflow's own React, by templates. What stands in a template is text, never markup.
import htm from "./vendor/htm.js";

const { React } = globalThis;

export const { Fragment, useCallback, useEffect, useId, useMemo, useRef, useState } = React;
export const { Link, useNavigate, useSearchParams } = globalThis.ReactRouterDOM;
export const html = htm.bind(React.createElement);
