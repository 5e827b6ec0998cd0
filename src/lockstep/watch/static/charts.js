// The charts of the page: which metrics, and the choices that all of them share.
import { Chart } from "./chart.js";
import { byId, element } from "./dom.js";
import { change, listen, state } from "./state.js";

const area = byId("charts");
const charts = new Map();
const FIRST = ["rollout/return_mean", "eval/return_mean", "train/loss", "eval/loss", "train/policy_loss", "train/value_loss", "time/global_fps", "train/grad_norm"];
const MOST_AT_FIRST = 6;

// What most people look at first; of a workload with other names its first metrics.
function chosen() {
  if (state.charts) return state.charts.filter((tag) => state.tags.includes(tag));
  const plain = state.tags.filter((tag) => /^(eval|rollout|train)\//.test(tag));
  return [...new Set([...FIRST.filter((tag) => state.tags.includes(tag)), ...plain])].slice(0, MOST_AT_FIRST);
}

function draw() {
  const tags = chosen();
  for (const [tag, chart] of charts) {
    if (!tags.includes(tag)) { chart.remove(); charts.delete(tag); }
  }
  for (const tag of tags) {
    if (!charts.has(tag)) charts.set(tag, new Chart(tag, { onclose: () => change("view", { charts: chosen().filter((other) => other !== tag) }) }));
    // appendChild moves what is there already, which would end a drag.
    if (!charts.get(tag).element.isConnected) area.append(charts.get(tag).element);
    charts.get(tag).refresh();
  }
  const add = byId("add");
  const names = ["", ...state.tags.filter((tag) => !tags.includes(tag))];
  if ([...add.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    add.replaceChildren(...names.map((tag) => element("option", { value: tag, text: tag || "add a metric …" })));
  }
  byId("axis").value = state.axis;
  byId("smooth").value = String(state.smooth);
  byId("bands").checked = state.bands;
  byId("log").checked = state.log;
  byId("unzoom").hidden = state.zoom === null;
}

export const redraw = () => { for (const chart of charts.values()) chart.refresh(true); };

byId("add").addEventListener("change", (event) => { if (event.target.value) change("view", { charts: [...chosen(), event.target.value] }); });
byId("axis").addEventListener("change", (event) => change("view", { axis: event.target.value, zoom: null }));
byId("smooth").addEventListener("change", (event) => change("view", { smooth: Number(event.target.value) }));
byId("bands").addEventListener("change", (event) => change("view", { bands: event.target.checked }));
byId("log").addEventListener("change", (event) => change("view", { log: event.target.checked }));
byId("unzoom").addEventListener("click", () => change("view", { zoom: null }));
listen(draw);
