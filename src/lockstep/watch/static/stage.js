// The policy of the selected run playing, and beside it another run's if one is chosen.
import { byId, element } from "./dom.js";
import { mount } from "./play.js";
import { listed, listen, state } from "./state.js";

const area = byId("play");
const beside = element("select", { "aria-label": "Another run beside it", onchange: () => draw() });
const stages = element("div", { class: "columns" });
area.append(element("div", { class: "tools" }, element("h2", { text: "Playing" }), element("label", {}, "beside it ", beside)), stages);
const mounted = new Map(); // by place: 0 is the selected run, 1 the one beside it

function show(place, run) {
  const before = mounted.get(place);
  if (before?.run === run) return;
  before?.panel.remove();
  before?.element.remove();
  mounted.delete(place);
  if (!run) return;
  const stage = element("div", {}, element("h3", { text: run }), element("div"));
  stages.append(stage);
  mounted.set(place, { run, element: stage, panel: mount(stage.lastChild, { run }) });
}

function draw() {
  area.hidden = state.selected === null;
  const others = ["", ...listed().map((run) => run.id).filter((id) => id !== state.selected)];
  const chosen = beside.value;
  if ([...beside.options].map((option) => option.value).join("\n") !== others.join("\n")) {
    beside.replaceChildren(...others.map((id) => element("option", { value: id, text: id || "none" })));
    beside.value = others.includes(chosen) ? chosen : "";
  }
  show(0, state.selected);
  show(1, beside.value || null);
}

listen(draw);
