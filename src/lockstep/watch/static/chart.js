// One chart: the curves of the shown runs for one metric, on an axis that all charts share.
import uPlot from "./vendor/uplot.js";
import { Curves, curvesOf } from "./curves.js";
import { colour, duration, element, short } from "./dom.js";
import { change, place, shown, state } from "./state.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(tag, { onclose, runs = shown, height = 220, evidence = false } = {}) {
    this.tag = tag;
    // As evidence every run has a curve of its own, unsmoothed; equal ones stay visible, since the first is the widest.
    this.evidence = evidence;
    this.runs = runs; // a function: which runs it shows now
    this.height = height;
    this.plotArea = element("div", { class: "plot" });
    this.plotArea.style.height = `${height}px`;
    this.tip = element("div", { class: "tip", hidden: true });
    const close = onclose && element("button", { type: "button", text: "×", "aria-label": `Remove ${tag}`, onclick: onclose });
    this.element = element("div", { class: "chart", "data-tag": tag }, element("div", { class: "chart-head" }, element("span", { text: tag }), close || null), this.plotArea, this.tip);
    this.asked = ""; // what the picture was drawn from
    this.busy = this.again = false;
    this.curves = [];
    this.kept = new Curves(tag);
    this.resizes = new ResizeObserver(() => this.resize());
    this.resizes.observe(this.plotArea);
  }

  remove() {
    this.resizes.disconnect();
    this.plot?.destroy();
    this.element.remove();
  }

  resize() {
    const width = this.plotArea.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  // Ask for the curves if anything changed since they were asked for; one question at a time.
  async refresh(force = false) {
    const runs = this.runs().map((run) => ({ id: run.id, version: versionOf(run) }));
    const view = [state.axis, state.smooth, state.bands, state.log, state.zoom, this.plotArea.clientWidth];
    const wanted = JSON.stringify([view, runs]);
    if (!force && wanted === this.asked) return;
    this.again = this.busy; // asked again as soon as the answer is there
    if (this.busy) return;
    this.busy = true;
    this.asked = wanted;
    try {
      const range = state.zoom ? { from: state.zoom[0], to: state.zoom[1] } : {};
      const points = Math.max(2 * this.plotArea.clientWidth, 300);
      const chosen = { axis: state.axis, smooth: this.evidence ? 1 : state.smooth, points, ...range };
      this.curves = state.bands && !this.evidence ? await this.bands(runs, chosen) : await this.kept.of(runs, chosen);
      this.draw();
    } catch {
      this.asked = ""; // the server is away: the next news asks again
    } finally {
      this.busy = false;
    }
    if (this.again) this.refresh();
  }

  async bands(runs, chosen) {
    if (!runs.length) return [];
    const found = await curvesOf(this.tag, { run: runs.map((run) => run.id), bands: 1, ...chosen });
    return found.filter((curve) => curve.x.length);
  }

  draw() {
    const tables = this.curves.map((curve) => (curve.low ? [curve.x, curve.y, curve.low, curve.high] : [curve.x, curve.y]));
    const data = tables.length ? uPlot.join(tables) : [[]];
    if (state.log) for (const column of data.slice(1)) column.forEach((value, at) => { if (value !== null && value <= 0) column[at] = null; });
    // Its shape: with other series, colours or scale a new plot is made, else the old one takes the new numbers.
    const shape = JSON.stringify([this.curves.map((curve) => [curve.id, Boolean(curve.low)]), state.axis, state.log, document.documentElement.dataset.theme]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, false);
      this.plot.batch(() => this.scale(this.plot));
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), data, this.plotArea);
    this.scale(this.plot);
  }

  scale(plot) {
    const x = plot.data[0];
    if (!x.length) return;
    const [min, max] = state.zoom ?? [x[0], x[x.length - 1]];
    plot.setScale("x", { min, max: max > min ? max : min + 1 });
  }

  options() {
    const series = [{}];
    const bands = [];
    for (const curve of this.curves) {
      const stroke = colour(place(curve.id));
      const width = this.evidence ? 1.6 + 3.2 * (this.curves.length - 1 - this.curves.indexOf(curve)) : 1.6;
      const line = { stroke, width, spanGaps: true, points: { show: curve.x.length === 1 } };
      series.push(line);
      if (!curve.low) continue;
      const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
      series.push(edge, { ...edge });
      bands.push({ series: [series.length - 1, series.length - 2], fill: `${stroke}33` });
    }
    const axis = { stroke: css("--faint"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const wide = this.plotArea.clientWidth;
    return {
      width: wide || 300,
      height: this.height,
      legend: { show: false },
      padding: [10, 14, 0, 0],
      series,
      bands,
      scales: { x: { time: false, auto: false }, y: { distr: state.log ? 3 : 1 } },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, values) => values.map(state.axis === "time" ? clock : steps(values)) },
        { ...axis, size: 54, values: (_, values) => values.map((value) => (value === null ? "" : short(value))) },
      ],
      cursor: {
        drag: { x: true, y: false, setScale: false },
        sync: { key: "lockstep", setSeries: false },
        // uPlot would zoom this chart out alone.
        bind: { dblclick: () => () => change("view", { zoom: null }) },
      },
      hooks: {
        setSelect: [(plot) => this.zoom(plot)],
        setCursor: [(plot) => this.point(plot)],
      },
    };
  }

  zoom(plot) {
    if (plot.select.width < 6) return;
    const range = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    change("view", { zoom: range });
  }

  // The values under the pointer, nearest point of each curve; only on the chart that it is over.
  point(plot) {
    const { left, idx } = plot.cursor;
    const over = plot.over.matches(":hover");
    this.tip.hidden = !over || left < 0 || idx === null || idx === undefined;
    if (this.tip.hidden) return;
    const at = plot.posToVal(left, "x");
    const rows = this.curves.map((curve) => ({ curve, value: curve.y[nearest(curve.x, at)] })).sort((a, b) => b.value - a.value);
    const lines = rows.slice(0, 8).map(({ curve, value }) => {
      const mark = element("i");
      mark.style.background = colour(place(curve.id));
      const name = curve.runs?.length > 1 ? `${curve.id} and ${curve.runs.length - 1} more` : curve.id;
      return element("div", {}, mark, `${short(value)}  ${name}`);
    });
    this.tip.replaceChildren(element("div", { class: "faint", text: state.axis === "time" ? duration(at) : `step ${Math.round(at).toLocaleString("en")}` }), ...lines);
    const room = this.plotArea.clientWidth;
    const x = left + plot.over.offsetLeft;
    this.tip.style.left = x > room / 2 ? "" : `${x + 14}px`;
    this.tip.style.right = x > room / 2 ? `${room - x + 14}px` : "";
    this.tip.style.top = "34px";
  }
}

// What is in view of a run changes with its version, unless that ends before the run's newest point.
function versionOf(run) {
  const newest = state.axis === "time" ? run.seconds : run.step;
  return state.zoom && state.zoom[1] < newest ? "past" : run.version;
}

// Labels of one axis in one unit: 5k, 10k, 15k rather than 5000, 10k, 15k.
function steps(values) {
  const largest = Math.max(...values.map(Math.abs));
  const [unit, name] = [[1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([size]) => largest >= size) ?? [1, ""];
  const size = unit === 1e4 ? 1e3 : unit;
  return (value) => (value === 0 ? "0" : `${Number((value / size).toPrecision(4))}${name}`);
}

// Seconds matter within the first minutes only.
const clock = (value) => (value < 600 ? duration(value) : duration(value).replace(/ \d+ s$/, ""));

function nearest(x, at) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle; else high = middle;
  }
  return at - x[low] < x[high] - at ? low : high;
}
