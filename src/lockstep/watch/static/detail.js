// One run: what limits it, its ranks, what happened to it, its checkpoints and settings.
import { ask, byId, colour, duration, element, percent, short, whole } from "./dom.js";
import { listen, state } from "./state.js";

const area = byId("detail");
let asked = "";
let busy = false;
let again = false;

const partColour = (parts, part) => (part === "other" ? "var(--faint)" : colour(parts.indexOf(part)));

function splitBar(split, parts) {
  const bar = element("div", { class: "split", role: "img", "aria-label": Object.entries(split).map(([part, share]) => `${part} ${percent(share)}`).join(", ") });
  for (const part of parts) {
    const piece = element("div", { title: `${part} ${percent(split[part] ?? 0)}` });
    piece.style.width = `${100 * (split[part] ?? 0)}%`;
    piece.style.background = partColour(parts, part);
    bar.append(piece);
  }
  return bar;
}

function legend(split, parts) {
  return element("div", { class: "legend" }, ...parts.map((part) => {
    const mark = element("i");
    mark.style.background = partColour(parts, part);
    return element("span", {}, mark, `${part} ${percent(split[part])}`);
  }));
}

function ranks(detail) {
  const parts = Object.keys(detail.split);
  const gpu = detail.ranks.some((rank) => rank.gpu_memory !== null);
  const head = ["rank", "steps/s", "CPU", "memory", ...(gpu ? ["GPU memory"] : []), "time"];
  const gb = (value) => (value === null ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} GB`);
  const rows = detail.ranks.map((rank) => element("tr", {},
    ...[String(rank.rank), short(rank.fps), rank.cpu === null ? "–" : `${Math.round(rank.cpu)} %`, gb(rank.memory), ...(gpu ? [gb(rank.gpu_memory)] : [])].map((text) => element("td", { class: "number", text })),
    element("td", {}, splitBar(Object.keys(rank.split).length ? rank.split : detail.split, parts))));
  const table = element("table", {}, element("tr", {}, ...head.map((text) => element("th", { class: text === "time" ? "" : "number", text }))), ...rows);
  return element("div", {}, element("h3", { text: "Ranks" }), element("div", { class: "scroll" }, table), legend(detail.split, parts), machine(detail.machine));
}

function machine(numbers) {
  const shown = Object.entries(numbers).map(([name, value]) => `${name.replaceAll("_", " ").replace(" percent", " %").replace(" gb", " GB")} ${short(value)}`);
  return element("div", { class: "legend", text: shown.join(" · ") });
}

const MARKS = { restart: "--bad", failed: "--bad", warning: "--warn", skipped: "--warn", checkpoint: "--accent" };

// Everything on one line of time, so that a restart is seen between the checkpoints around it.
function strip(timeline) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 1000 30");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("class", "strip");
  const [first, last] = [timeline[0].time, timeline[timeline.length - 1].time];
  const line = (x1, x2, y1, y2, stroke, width) => {
    const made = document.createElementNS(space, "line");
    for (const [name, value] of Object.entries({ x1, x2, y1, y2, stroke, "stroke-width": width, "vector-effect": "non-scaling-stroke" })) made.setAttribute(name, value);
    picture.append(made);
    return made;
  };
  line(0, 1000, 15, 15, "var(--line)", 2);
  for (const entry of timeline) {
    const x = 6 + (988 * (entry.time - first)) / Math.max(last - first, 1e-3);
    const title = document.createElementNS(space, "title");
    title.textContent = `${entry.kind} ${entry.text}`;
    line(x, x, entry.kind === "checkpoint" ? 9 : 3, entry.kind === "checkpoint" ? 21 : 27, `var(${MARKS[entry.kind] ?? "--good"})`, 3).append(title);
  }
  return picture;
}

function happened(detail) {
  if (!detail.timeline.length) return element("div", {}, element("h3", { text: "What happened" }), element("div", { class: "faint", text: "No events yet." }));
  const rows = [...detail.timeline].reverse().map((entry) => element("li", {},
    element("time", { text: new Date(1000 * entry.time).toLocaleTimeString("en-GB") , title: new Date(1000 * entry.time).toLocaleString("en-GB") }),
    element("span", { class: `kind ${entry.kind}`, text: entry.kind }),
    element("span", { text: entry.step === null || entry.kind === "checkpoint" ? entry.text : `step ${whole(entry.step)}: ${entry.text}` })));
  return element("div", {}, element("h3", { text: "What happened" }), strip(detail.timeline), element("ul", { class: "timeline" }, ...rows));
}

const title = (one) => (one.step === null ? one.name : one.name.startsWith("checkpoints/") ? `step ${whole(one.step)}` : `${one.name}, step ${whole(one.step)}`);

function checkpoints(detail) {
  const marks = { verified: ["good", "✓ every hash matches"], "sizes match": ["", "sizes match"], damaged: ["bad", "✗ damaged"] };
  const rows = [...detail.checkpoints].reverse().map((one) => {
    const [style, text] = marks[one.state] ?? ["", one.state];
    const button = one.state === "sizes match" ? element("button", { type: "button", text: "check hashes", onclick: () => verify(one.name) }) : "";
    return element("tr", {}, element("td", { text: title(one), title: one.name }), element("td", { class: style, text: [text, ...one.problems].join(": ") }), element("td", {}, button));
  });
  const table = rows.length ? element("div", { class: "scroll" }, element("table", {}, ...rows)) : element("div", { class: "faint", text: "None yet." });
  return element("div", {}, element("h3", { text: "Checkpoints" }), table);
}

function settings(detail) {
  const rows = Object.entries(detail.settings).map(([name, value]) => element("tr", {}, element("td", { class: "faint", text: name }), element("td", { text: value })));
  return element("details", {}, element("summary", { text: `All ${rows.length} settings` }), element("div", { class: "scroll" }, element("table", {}, ...rows)));
}

function draw(detail, run) {
  const open = area.querySelector("details")?.open ?? false;
  const scrolled = area.querySelector(".timeline")?.scrollTop ?? 0;
  area.replaceChildren(
    element("h2", {}, `${detail.id} `, element("span", { class: `state ${run.state}`, text: run.state })),
    element("div", { class: "path", text: `${detail.path} · ${duration(run.seconds)}${run.why ? ` · ${run.why}` : ""}${run.hash ? ` · weights ${run.hash}…` : ""}` }),
    element("div", { class: "limit", text: detail.limit || "Nothing measured yet." }),
    element("div", { class: "columns" }, happened(detail), element("div", { class: "stack" }, ranks(detail), checkpoints(detail))),
    settings(detail),
  );
  area.querySelector("details").open = open;
  if (area.querySelector(".timeline")) area.querySelector(".timeline").scrollTop = scrolled;
}

async function verify(name) {
  const run = state.runs.find((found) => found.id === state.selected);
  if (run === undefined) return;
  try {
    const detail = await ask("/api/verify", { id: run.id, checkpoint: name });
    if (state.selected === run.id) draw(detail, run);
  } catch {
    asked = ""; // the run or the checkpoint is gone: the panel is drawn anew
    refresh();
  }
}

async function refresh() {
  const run = state.runs.find((found) => found.id === state.selected);
  area.hidden = run === undefined;
  if (run === undefined) return;
  const wanted = JSON.stringify([run.id, run.version, run.state, run.events]);
  if (wanted === asked) return;
  again = busy; // asked again as soon as the answer is there
  if (busy) return;
  busy = true;
  asked = wanted;
  try {
    const detail = await ask("/api/run", { id: run.id });
    if (state.selected === run.id) draw(detail, run);
  } catch {
    asked = ""; // it is asked again with the next news
  } finally {
    busy = false;
  }
  if (again) refresh();
}

listen(refresh);
