// The visitor's own list: items that were liked, and what is recommended for them.

import { $ } from "./dom.js";
import { filtered } from "./filters.js";
import { loading } from "./loading.js";
import { results, wanted } from "./results.js";
import { sentence } from "./sentence.js";
import { state } from "./state.js";

const list = results($("#history-results"));

export const filterOwn = () => list.filter();

export const loadOwn = loading($("#history"), async (signal, pause) => {
  const { have, hide } = state;
  list.chips();
  // The pause is inside the work, so that a change aborts an earlier request at once.
  await new Promise((resolve) => setTimeout(resolve, pause));
  signal.throwIfAborted();
  const body = { history: have, k: wanted(), explain: true, ...(await filtered(signal)) };
  if (hide.length) body.exclude = hide;
  const answer = await list.show(signal, { path: "recommend", body, subject: null, say: sentence });
  const ignored = answer.unknown.join(", ");
  const note = $("#unknown");
  note.hidden = !ignored;
  note.textContent = ignored ? `The model does not know, and ignores: ${ignored}.` : "";
  await list.learn([...have, ...hide], signal);
});
