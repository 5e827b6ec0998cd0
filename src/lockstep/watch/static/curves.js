// Curves from the server: of runs that grow their ends alone, and the questions of all charts that want the same become one.
import { ask } from "./dom.js";

// The curves of some runs for one metric, kept between two pictures of the same view.
export class Curves {
  constructor(tag) {
    this.tag = tag;
    this.view = "";
    this.known = new Map(); // by run: { version, cursor, x, y }
  }

  // runs: [{ id, version }]; view: axis, smooth, points, and the range if there is one.
  async of(runs, view) {
    if (JSON.stringify(view) !== this.view) this.known.clear();
    this.view = JSON.stringify(view);
    const changed = runs.filter((run) => this.known.get(run.id)?.version !== run.version);
    if (changed.length) {
      const cursors = changed.map((run) => this.known.get(run.id)?.cursor ?? "");
      const found = await curvesOf(this.tag, { run: changed.map((run) => run.id), cursor: cursors, ...view });
      const versions = new Map(changed.map((run) => [run.id, run.version]));
      for (const part of found) this.known.set(part.id, { ...extended(this.known.get(part.id), part), version: versions.get(part.id) });
    }
    return runs.map((run) => this.known.get(run.id)).filter((curve) => curve?.x.length);
  }
}

// What is known, with the end that the server has sent in place of its own.
export function extended(known, part) {
  if (part.since === null || known === undefined) return part;
  let kept = known.x.length;
  while (kept && known.x[kept - 1] >= part.since) kept -= 1;
  return { ...part, x: known.x.slice(0, kept).concat(part.x), y: known.y.slice(0, kept).concat(part.y) };
}

const waiting = new Map(); // by what is asked, apart from the tag

export function curvesOf(tag, wanted) {
  const key = JSON.stringify(wanted);
  if (!waiting.has(key)) {
    const question = { tags: new Set() };
    // After every chart has had its turn with the news.
    question.answer = new Promise((resolve) => setTimeout(resolve)).then(() => {
      waiting.delete(key);
      return ask("/api/series", { tag: [...question.tags], ...wanted });
    });
    waiting.set(key, question);
  }
  const { tags, answer } = waiting.get(key);
  tags.add(tag);
  return answer.then((found) => found[tag]);
}
