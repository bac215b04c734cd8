// HTML templates for Airflow's own React. Values in a template are text, never markup.
import htm from "./vendor/htm.js";

const { React } = globalThis;

export const { Fragment, useCallback, useEffect, useId, useMemo, useRef, useState } = React;
export const { Link, useNavigate, useSearchParams } = globalThis.ReactRouterDOM;
export const html = htm.bind(React.createElement);
