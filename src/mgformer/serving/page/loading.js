// One load of a part of the page at a time, and its errors.

import { $, el } from "./dom.js";

/** Return a function that runs `work(signal, …)` after ending the last run, and shows errors. */
export function loading(section, work) {
  const status = $(".status", section);
  let controller = null;
  return async function load(...what) {
    controller?.abort();
    const mine = (controller = new AbortController());
    section.setAttribute("aria-busy", "true");
    try {
      await work(mine.signal, ...what);
      status.classList.remove("error");
      status.textContent = "";
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof Error && "status" in error)) throw error;
      // Without a key, the page has not learned what the service offers: it starts again.
      const again = () => (error.status === 401 ? location.reload() : load(...what));
      const button = el("button", { type: "button", class: "quiet", click: again }, "Try again");
      status.classList.add("error");
      status.replaceChildren(error.message, " ", error.status === 404 ? "" : button);
    } finally {
      if (controller === mine) section.setAttribute("aria-busy", "false");
    }
  };
}

/** Replace the message of a 404. */
export async function orUnknown(promise, message) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 404) error.message = message;
    throw error;
  }
}
