// The items that were liked and hidden, as chips that can be removed.

import { $, el } from "./dom.js";
import { itemLink, nameOf, sync } from "./items.js";
import { basket, go, state, toggle } from "./state.js";

/** Return a function that shows the chips in a list. `unknown` has ids that the model ignores. */
export function chips(list, root) {
  let drawn = "[]";
  return function show(unknown = new Set()) {
    const liked = state[basket()].map((id) => ["like", id]);
    const hidden = state.hide.map((id) => ["hide", id]);
    const all = [...liked, ...hidden];
    // Chips that look the same are kept: replacing one between press and release would lose the
    // click.
    const looks = JSON.stringify(all.map(([kind, id]) => [kind, id, nameOf(id), unknown.has(id)]));
    if (looks === drawn) return;
    drawn = looks;
    const focused = [...list.children].findIndex((one) => one.contains(document.activeElement));
    const rows = all.map(([kind, id]) => chip(kind, id, unknown.has(id)));
    if (all.length > 1) rows.push(el("li", { class: "all" }, clearButton()));
    list.replaceChildren(...rows);
    list.hidden = !all.length;
    // If the focused button is removed with its chip, focus the next one, or the filter.
    const following = rows[Math.min(focused, all.length - 1)];
    if (focused >= 0) (following ? $("button", following) : $(".filter", root))?.focus();
    sync();
  };
}

function chip(kind, id, isUnknown) {
  const click = () => toggle(kind === "hide" ? "hide" : basket(), id);
  const words = kind === "hide" ? `Show ${nameOf(id)} again` : `Remove ${nameOf(id)}`;
  const remove = { type: "button", class: "remove", "aria-label": words, title: words, click };
  const mark = el("span", { class: "mark" }, kind === "hide" ? "hidden" : "♥");
  const shown = isUnknown ? el("span", { class: "name id", dir: "auto" }, id) : itemLink(id);
  const tag = isUnknown ? el("span", { class: "tag" }, "unknown") : null;
  return el(
    "li",
    { class: `pick ${kind}`, "data-id": id },
    mark,
    shown,
    tag,
    el("button", remove, "×"),
  );
}

function clearButton() {
  const click = () => go({ [basket()]: [], hide: [] });
  return el("button", { type: "button", class: "quiet clear", click }, "Remove all");
}
