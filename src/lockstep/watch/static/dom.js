// Elements and numbers. Texts reach the page as text only: a run's file can never become markup.

export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return trim(value);
}

const trim = (value) => String(Number(value.toPrecision(4)));

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  // Rounded first: 119.7 s are 2 min, not 1 min 60 s.
  const all = Math.round(seconds);
  if (all < 60) return `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))} s`;
  const minutes = Math.floor(all / 60);
  if (minutes < 60) return `${minutes} min ${all % 60} s`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);

// Colours that can be told apart in light and in dark, also by most people who see fewer of them.
const COLOURS = ["#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#14b8a6", "#eab308", "#ec4899", "#84cc16", "#64748b"];
export const colour = (place) => COLOURS[place % COLOURS.length];

export async function ask(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) query.append(name, one);
  }
  const answer = await fetch(`${path}?${query}`);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
