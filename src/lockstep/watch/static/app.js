// The page: news from the server become state, and every part draws itself from that.
import "./runs.js";
import "./charts.js";
import "./proof.js";
import "./detail.js";
import "./keys.js";
import { byId } from "./dom.js";
import { change, state } from "./state.js";

// The token has become a cookie; in the address it could be copied along by mistake.
history.replaceState(null, "", "/");

let source = null;

function connect() {
  source = new EventSource("/api/live");
  source.onopen = () => connection("");
  source.onerror = () => connection("not connected: is lockstep watch still running?");
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    const first = state.selected === null && news.runs.length;
    change("runs", { ...news, selected: first ? [...news.runs].sort((a, b) => b.updated - a.updated)[0].id : state.selected });
  };
}

function connection(text) {
  byId("connection").textContent = text;
  byId("connection").classList.toggle("lost", text !== "");
}

// A page that nobody looks at costs the runs nothing.
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (!document.hidden) connect();
});
connect();
