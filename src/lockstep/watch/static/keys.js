// The keyboard, and light and dark.
import { byId } from "./dom.js";
import { redraw as redrawCharts } from "./charts.js";
import { redraw as redrawProof } from "./proof.js";
import { select, toggle } from "./runs.js";
import { change, listed, shown, state } from "./state.js";

const system = matchMedia("(prefers-color-scheme: dark)");

function paint() {
  document.documentElement.dataset.theme = state.theme || (system.matches ? "dark" : "light");
  redrawCharts();
  redrawProof();
}

function switchTheme() {
  change("view", { theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
  paint();
}

function move(by) {
  const runs = listed();
  if (!runs.length) return;
  const at = runs.findIndex((run) => run.id === state.selected);
  const next = runs[Math.min(Math.max(at + by, 0), runs.length - 1)];
  select(next.id);
  [...document.querySelectorAll("[data-run]")].find((row) => row.dataset.run === next.id)?.scrollIntoView({ block: "nearest" });
}

function only() {
  const alone = shown().length === 1 && shown()[0].id === state.selected;
  change("view", { hidden: new Set(alone || !state.selected ? [] : state.runs.map((run) => run.id).filter((id) => id !== state.selected)) });
}

function smooth(by) {
  const values = [...byId("smooth").options].map((option) => Number(option.value));
  const at = Math.min(Math.max(values.indexOf(state.smooth) + by, 0), values.length - 1);
  change("view", { smooth: values[at] });
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  x: () => state.selected && toggle(state.selected),
  o: only,
  "/": () => byId("filter").focus(),
  t: () => change("view", { axis: state.axis === "step" ? "time" : "step", zoom: null }),
  s: () => smooth(1),
  S: () => smooth(-1),
  b: () => change("view", { bands: !state.bands }),
  l: () => change("view", { log: !state.log }),
  0: () => change("view", { zoom: null }),
  d: switchTheme,
  "?": () => byId("help").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.id === "filter") event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
  if (event.key in KEYS) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
byId("theme").addEventListener("click", switchTheme);
byId("help-button").addEventListener("click", () => byId("help").showModal());
system.addEventListener("change", paint);
paint();
