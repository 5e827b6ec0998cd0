// The list of runs: state, progress, what differs, best score; filter, sort and group.
import { byId, colour, duration, element, percent, short, whole } from "./dom.js";
import { change, hold, listed, listen, place, SORTS, state } from "./state.js";

const list = byId("runs");
let pressed = false; // a card that is replaced between press and release is not clicked
let late = false;

function options(select, names, chosen) {
  const known = [...select.options].map((option) => option.value).join("\n");
  if (known !== names.map(([value]) => value).join("\n")) {
    select.replaceChildren(...names.map(([value, text]) => element("option", { value, text })));
  }
  select.value = chosen;
}

function bestOf(run) {
  if (run.best === null) return null;
  const direction = run.best.lower ? "lower is better" : "higher is better";
  return element("div", { class: "facts best", title: `${run.best.name}, ${direction}`, text: `best ${run.best.name} ${short(run.best.value)} ${run.best.lower ? "↓" : "↑"}` });
}

function row(run) {
  const hidden = state.hidden.has(run.id);
  const paint = colour(place(run.id));
  const swatch = element("button", { class: "swatch", type: "button", "aria-pressed": String(!hidden), "aria-label": `Curves of ${run.id}`, onclick: (event) => { event.stopPropagation(); toggle(run.id); } });
  swatch.style.borderColor = paint;
  if (!hidden) swatch.style.background = paint;
  const bar = element("div", { class: "bar", role: "progressbar", "aria-valuenow": Math.round(100 * (run.progress ?? 0)) }, element("div"));
  bar.firstChild.style.width = `${100 * (run.progress ?? 0)}%`;
  const steps = run.total ? `${whole(run.step)} of ${whole(run.total)} steps (${percent(run.progress)})` : `${whole(run.step)} steps`;
  const left = run.state === "running" && run.total && run.speed ? `, ${duration((run.total - run.step) / run.speed)} left` : "";
  const speed = run.speed === null ? "" : `${short(run.speed)} steps/s`;
  const ranks = `${run.ranks || "?"} rank${run.ranks === 1 ? "" : "s"}`;
  const differs = Object.entries(run.settings).map(([name, value]) => `${name} ${value}`).join(" · ");
  return element(
    "div",
    { class: `run${hidden ? " off" : ""}${state.selected === run.id ? " selected" : ""}`, "data-run": run.id, tabindex: "0", role: "button", title: run.why, onclick: () => select(run.id), onkeydown: (event) => { if (event.key === "Enter") select(run.id); } },
    swatch,
    element("span", { class: "name", text: run.id }),
    element("span", { class: `state ${run.state}`, text: run.state }),
    run.total && run.state !== "finished" ? bar : null,
    element("div", { class: "facts" }, element("span", { text: `${steps}${left}` })),
    element("div", { class: "facts", text: `${run.workload} · ${ranks}${speed ? ` · ${speed}` : ""}` }),
    bestOf(run),
    differs ? element("div", { class: "differs", text: differs }) : null,
  );
}

export const select = (id) => change("selected", { selected: id });

export function toggle(id) {
  state.hidden.has(id) ? state.hidden.delete(id) : state.hidden.add(id);
  change("view");
}

export function draw() {
  late = pressed;
  if (pressed) return;
  options(byId("sort"), Object.keys(SORTS).map((name) => [name, name]), state.sort);
  const groups = [["", "none"], ["workload", "workload"], ["state", "state"], ["ranks", "ranks"], ...state.settings.map((name) => [name, name])];
  options(byId("group"), groups, groups.some(([name]) => name === state.group) ? state.group : "");
  const focused = document.activeElement?.closest?.("[data-run]")?.dataset.run;
  const runs = listed();
  const grouped = new Map();
  for (const run of runs) {
    const value = state.group ? String(run[state.group] ?? run.settings[state.group] ?? "–") : "";
    grouped.set(value, [...(grouped.get(value) ?? []), run]);
  }
  const parts = [];
  for (const [value, members] of grouped) {
    if (state.group) parts.push(element("div", { class: "group", text: `${state.group} ${value} (${members.length})` }));
    parts.push(...members.map(row));
  }
  if (!runs.length) parts.push(element("div", { class: "empty", text: state.runs.length ? "No run matches the filter." : "No runs yet: start one with lockstep train snake --preset small." }));
  list.replaceChildren(...parts);
  if (focused) [...list.querySelectorAll("[data-run]")].find((found) => found.dataset.run === focused)?.focus({ preventScroll: true });
  const running = state.runs.filter((run) => run.state === "running").length;
  byId("summary").textContent = `${state.runs.length} run${state.runs.length === 1 ? "" : "s"}, ${running} running`;
}

byId("filter").addEventListener("input", (event) => change("view", { filter: event.target.value.trim() }));
list.addEventListener("pointerenter", () => hold(true));
list.addEventListener("pointerleave", () => { hold(false); draw(); });
list.addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) {
  // After the click, which comes next.
  addEventListener(end, () => setTimeout(() => { pressed = false; if (late) draw(); }));
}
byId("sort").addEventListener("change", (event) => change("view", { sort: event.target.value }));
byId("group").addEventListener("change", (event) => change("view", { group: event.target.value }));
listen(draw);
