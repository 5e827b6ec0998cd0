// What the page knows and what the user chose; those who show it are told of every change.

const STORED = "lockstep-watch";
const DEFAULTS = { axis: "step", smooth: 1, bands: false, log: false, sort: "newest", group: "", charts: null, theme: "" };

export const state = {
  runs: [], settings: [], tags: [], experiments: [],
  selected: null,
  hidden: new Set(),
  filter: "",
  zoom: null, // [from, to] on the axis of all charts
  ...DEFAULTS, ...stored(),
};

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "{}");
    return Object.fromEntries(Object.entries(found).filter(([name]) => name in DEFAULTS));
  } catch {
    return {};
  }
}

const listeners = new Set();
export const listen = (listener) => listeners.add(listener);

// what: "runs" (news from the server), "view" (a choice of the user) or "selected".
export function change(what, values = {}) {
  Object.assign(state, values);
  const kept = Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, state[name]]));
  try { localStorage.setItem(STORED, JSON.stringify(kept)); } catch { /* private mode: nothing is kept */ }
  for (const listener of listeners) listener(what);
}

// The order of runs while the pointer is among them: another run must not move under it. New ones come last.
let held = null;
export function hold(still) {
  held = null;
  if (still) held = listed().map((run) => run.id);
}

// A run keeps its colour while others come and go.
const places = new Map();
export function place(id) {
  if (!places.has(id)) places.set(id, places.size);
  return places.get(id);
}

export function listed() {
  const runs = sorted(state.runs.filter(matches));
  if (held === null) return runs;
  const places = new Map(held.map((id, at) => [id, at]));
  return runs.sort((a, b) => (places.get(a.id) ?? Infinity) - (places.get(b.id) ?? Infinity) || 0);
}
export const shown = () => listed().filter((run) => !state.hidden.has(run.id));

function matches(run) {
  const texts = [run.id, run.state, run.workload, `${run.ranks} ranks`, ...Object.entries(run.settings).map(([name, value]) => `${name}=${value}`)];
  return state.filter.toLowerCase().split(/\s+/).every((word) => texts.some((text) => text.toLowerCase().includes(word)));
}

const ORDER = ["running", "restarting", "failed", "stopped", "finished", "unreadable", "gone"];
const byScore = (run) => (run.best === null ? -Infinity : run.best.lower ? -run.best.value : run.best.value);
export const SORTS = {
  newest: (a, b) => b.updated - a.updated,
  name: (a, b) => a.id.localeCompare(b.id, "en", { numeric: true }),
  best: (a, b) => byScore(b) - byScore(a),
  state: (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state),
  steps: (a, b) => b.step - a.step,
  speed: (a, b) => (b.speed ?? 0) - (a.speed ?? 0),
};

const sorted = (runs) => [...runs].sort((a, b) => (SORTS[state.sort] ?? SORTS.newest)(a, b) || SORTS.name(a, b));
