// The panel in which a policy plays: `mount(element, {run, checkpoint})`, once for each policy that is shown.

import { paint } from "./paint.js";

const NEWEST = "newest";
const SPEEDS = [0.5, 1, 2, 4];

/** Show a run's policy in an element; `checkpoint`: the name of weights to choose first. Returns `{start, stop, remove}`. */
export function mount(element, { run, checkpoint = NEWEST, start = false }) {
  const panel = new Panel(element, run, checkpoint);
  if (start) panel.start();
  return { start: () => panel.start(), stop: () => panel.stop(), remove: () => panel.remove() };
}

class Panel {
  constructor(element, run, checkpoint) {
    this.run = run;
    this.frame = this.image = this.events = null;
    this.addStyles();
    this.root = make("div", "play");
    this.button = make("button", "play-button");
    this.button.type = "button";
    this.choice = select("weights that play", [[checkpoint, checkpoint]]);
    this.speed = select("speed", SPEEDS.map((speed) => [speed, `${speed} ×`]));
    this.speed.value = "1";
    this.playing = make("span", "play-step");
    this.canvas = make("canvas", "play-canvas");
    this.canvas.setAttribute("role", "img");
    this.caption = make("p", "play-caption");
    this.note = make("p", "play-note");
    this.note.setAttribute("role", "status");
    const bar = make("div", "play-bar");
    bar.append(this.button, this.choice, this.speed, this.playing);
    this.root.append(bar, this.canvas, this.caption, this.note);
    element.replaceChildren(this.root);

    this.button.addEventListener("click", () => (this.events ? this.stop() : this.start()));
    for (const chooser of [this.choice, this.speed]) {
      chooser.addEventListener("change", () => this.events && this.start());
    }
    // New checkpoints appear while a run trains: the list is read again whenever it is about to be opened.
    this.choice.addEventListener("focus", () => this.list());
    this.onVisibility = () => this.follow();
    document.addEventListener("visibilitychange", this.onVisibility);
    this.resized = new ResizeObserver(() => this.repaint());
    this.resized.observe(this.root);
    // Light and dark are switched by an attribute of the page; what stands still is painted again in the other ink.
    this.themed = new MutationObserver(() => this.repaint());
    this.themed.observe(document.documentElement, { attributes: true });
    this.show();
    this.list();
  }

  addStyles() {
    const address = new URL("./play.css", import.meta.url).href;
    if ([...document.styleSheets].some((sheet) => sheet.href === address)) return;
    if (document.querySelector("link[data-play]")) return;
    const link = make("link");
    link.rel = "stylesheet";
    link.href = address;
    link.dataset.play = "";
    document.head.append(link);
  }

  /** Fill the list of weights, keeping what is chosen. */
  async list() {
    const answer = await fetch(`/play/models?${new URLSearchParams({ run: this.run })}`).catch(() => null);
    if (!answer?.ok) return;
    const { models } = await answer.json();
    const options = [[NEWEST, "newest weights"], ...models.map(({ name, step }) => [name, label(name, step)])];
    const chosen = this.choice.value;
    if (!options.some(([value]) => value === chosen)) options.push([chosen, chosen]);
    this.choice.replaceChildren(...options.map(option));
    this.choice.value = chosen;
  }

  start() {
    this.stop();
    this.say("starting the player…");
    const wish = { run: this.run, model: this.choice.value, speed: this.speed.value };
    this.events = new EventSource(`/play/frames?${new URLSearchParams(wish)}`);
    this.events.addEventListener("frame", (event) => this.take(JSON.parse(event.data)));
    this.events.addEventListener("note", (event) => this.say(JSON.parse(event.data).note));
    this.events.addEventListener("over", (event) => {
      this.stop();
      this.say(JSON.parse(event.data).error, true);
    });
    this.events.addEventListener("error", () => {
      // A refused request is not tried again by the browser; a lost connection is.
      if (this.events?.readyState === EventSource.CLOSED) this.stop();
      this.say(this.events ? "connection lost, trying again…" : "these weights are not there any more", true);
    });
    this.show();
  }

  stop() {
    this.events?.close();
    this.events = null;
    this.resumes = false;
    this.say("");
    this.show();
  }

  /** A page that nobody sees does not keep a player busy. */
  follow() {
    if (document.hidden && this.events) {
      this.stop();
      this.resumes = true;
    } else if (!document.hidden && this.resumes) this.start();
  }

  remove() {
    this.stop();
    this.resized.disconnect();
    this.themed.disconnect();
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.root.remove();
  }

  async take(frame) {
    if (frame.drawing.kind === "picture") {
      const image = new Image();
      image.src = frame.drawing.url;
      // A frame that cannot be decoded is left out; the next one comes soon.
      if (!(await image.decode().then(() => true, () => false))) return;
      // Stopped while it was decoded: a message that says why must stay.
      if (!this.events) return;
      this.image = image;
    }
    this.frame = frame;
    this.say("");
    this.playing.textContent = `playing step ${frame.step.toLocaleString("en")}`;
    this.caption.textContent = frame.caption;
    this.canvas.setAttribute("aria-label", frame.caption);
    this.root.dataset.frames = String(Number(this.root.dataset.frames || 0) + 1);
    this.repaint();
  }

  repaint() {
    if (!this.frame || !this.root.clientWidth) return;
    const drawing = this.frame.drawing;
    // A small board is not blown up to the width of a wide page.
    const widest = drawing.kind === "board" && drawing.width <= drawing.height ? 420 : 760;
    const width = Math.min(this.root.clientWidth, widest);
    this.canvas.style.width = `${width}px`;
    paint(this.canvas, drawing, width, inkOf(this.root), this.image);
  }

  say(text, isProblem = false) {
    this.note.textContent = text;
    this.note.classList.toggle("play-problem", isProblem);
  }

  show() {
    this.button.textContent = this.events ? "Stop" : "Play";
    this.button.setAttribute("aria-pressed", String(Boolean(this.events)));
    this.root.classList.toggle("play-empty", !this.frame && !this.events);
  }
}

const label = (name, step) => `${name.startsWith("step-") ? "checkpoint" : name}, step ${step.toLocaleString("en")}`;

/** The page's text colour, in light and dark alike. */
const inkOf = (element) => (getComputedStyle(element).color.match(/[\d.]+/g) || [128, 128, 128]).slice(0, 3).map(Number);

function make(kind, name = "") {
  const element = document.createElement(kind);
  if (name) element.className = name;
  return element;
}

function option([value, text]) {
  const element = make("option");
  element.value = value;
  element.textContent = text;
  return element;
}

function select(name, options) {
  const element = make("select");
  element.setAttribute("aria-label", name);
  element.append(...options.map(option));
  return element;
}
