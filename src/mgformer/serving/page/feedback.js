// Tell the service what was liked, if it takes feedback.

import { ask } from "./api.js";
import { state } from "./state.js";

let isTaken = false;

export function takeFeedback(taken) {
  isTaken = taken;
}

/** Send that the user shown likes an item. Nothing on the page waits for it. */
export function likes(item) {
  if (!isTaken || state.user === null) return; // feedback is about users
  ask("feedback", { body: { user: state.user, item }, model: null }).catch(() => {});
}
