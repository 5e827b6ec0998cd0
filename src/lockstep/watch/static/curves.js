// Curves from the server: the questions of all charts that want the same range of the same runs become one.
import { ask } from "./dom.js";

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
