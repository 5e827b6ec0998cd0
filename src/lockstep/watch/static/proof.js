// The proof: runs of one experiment on different numbers of ranks, their curves and the hashes of their weights.
import { Chart } from "./chart.js";
import { byId, colour, element, whole } from "./dom.js";
import { listen, place, state } from "./state.js";

const area = byId("proof");
const drawn = new Map(); // by the names of the members

function curveTag() {
  return ["rollout/return_mean", "train/loss", "eval/return_mean"].find((tag) => state.tags.includes(tag)) ?? state.tags.find((tag) => tag.startsWith("train/")) ?? "";
}

const runOf = (id) => state.runs.find((run) => run.id === id);

function heading(experiment) {
  const verdict = experiment.parts_at === null ? (experiment.compared ? "same" : "") : experiment.sync === "fast" ? "rounding" : "parted";
  const mark = { same: "✓ ", parted: "✗ ", rounding: "≈ " }[verdict] ?? "";
  const about = `${experiment.workload}, --sync ${experiment.sync}, seed ${experiment.seed}: ${whole(experiment.compared)} ${experiment.compared === 1 ? "step" : "steps"} compared by the sha256 of all weights`;
  return [element("div", { class: `verdict ${verdict}`, text: mark + experiment.sentence }), element("div", { class: "about", text: about })];
}

function table(experiment) {
  const head = experiment.members.map((id) => {
    const swatch = element("span", { text: "■ " });
    swatch.style.color = colour(place(id));
    const ranks = runOf(id)?.ranks ?? "?";
    return element("th", { title: id }, swatch, `${ranks} rank${ranks === 1 ? "" : "s"}`);
  });
  const rows = [...experiment.rows].reverse().map((row) =>
    element("tr", { class: row.same ? "same" : "other" },
      element("td", { class: "number", text: whole(row.step) }),
      element("td", { class: `mark ${row.same ? "same" : "other"}`, text: row.same ? "=" : "≠", "aria-label": row.same ? "the same" : "not the same" }),
      ...row.hashes.map((hash) => element("td", { class: "hash", text: hash }))));
  return element("table", { class: "hashes" }, element("tr", {}, element("th", { class: "number", text: "step" }), element("th"), ...head), ...rows);
}

function draw(what) {
  area.hidden = !state.experiments.length;
  const names = state.experiments.map((experiment) => experiment.members.join("\n"));
  for (const [name, one] of drawn) {
    if (!names.includes(name)) { one.chart.remove(); one.element.remove(); drawn.delete(name); }
  }
  for (const experiment of state.experiments) {
    const name = experiment.members.join("\n");
    if (!drawn.has(name)) {
      const chart = new Chart(curveTag(), { runs: () => experiment.members.map(runOf).filter(Boolean), height: 210, evidence: true });
      const head = element("div"), side = element("div", { class: "scroll" });
      const block = element("div", { class: "experiment" }, head, element("div", { class: "proof-body" }, chart.element, side));
      drawn.set(name, { chart, head, side, element: block });
      area.append(block);
    }
    const one = drawn.get(name);
    if (what === "runs") {
      one.head.replaceChildren(...heading(experiment));
      one.side.replaceChildren(table(experiment));
    }
    one.chart.refresh();
  }
}

export const redraw = () => { for (const one of drawn.values()) one.chart.refresh(true); };

listen(draw);
