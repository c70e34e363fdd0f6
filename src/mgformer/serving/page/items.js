// How an item is shown: its name as a link to similar items, its id, and buttons to like and hide.

import { ask } from "./api.js";
import { $, el, icon } from "./dom.js";
import { likes } from "./feedback.js";
import { address, basket, state, toggle } from "./state.js";

const HEART =
  "M12 20.5 4.2 12.9a4.9 4.9 0 0 1 0-7 5 5 0 0 1 7 0l.8.8.8-.8a5 5 0 0 1 7 0 4.9 4.9 0 0 1 0 7Z";
const CROSS = "M6 6l12 12M18 6 6 18";
const names = new Map(); // by id; null for an item without a name

export const nameOf = (id) => names.get(String(id)) ?? String(id);
const hasName = (id) => nameOf(id) !== String(id);

export function remember(items) {
  for (const { item, name } of items) names.set(String(item), name ?? null);
  return items;
}

/** Load the names of items, which an address does not have. Unknown items keep their ids. */
export async function learnNames(ids, signal) {
  const unnamed = (some) => some.filter((id) => !names.has(id));
  let left = unnamed(ids);
  while (left.length) {
    // With these options the answer lists the candidates, up to the largest k of the service.
    const body = { history: [], candidates: left, exclude_seen: false };
    try {
      remember((await ask("recommend", { body, signal })).items);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    const rest = unnamed(left);
    // The service writes ids that are left differently, as 3 for 03, or does not know them.
    if (rest.length === left.length) return;
    left = rest;
  }
}

/** The name, or the id of an item without a name. A name may wrap, an id never does. */
export function itemLink(id) {
  const kind = hasName(id) ? "name" : "name id";
  return el("a", { class: kind, "data-item": id, dir: "auto", title: String(id) }, nameOf(id));
}

/** The id beside a name; null if the item has no name. */
export const idTag = (id) =>
  hasName(id) ? el("span", { class: "id", dir: "auto", title: String(id) }, String(id)) : null;

function button(kind, id, path, more) {
  const click = () => {
    const name = kind === "like" ? basket() : "hide";
    if (kind === "like" && !state[name].includes(String(id))) likes(String(id));
    toggle(name, String(id));
  };
  return el("button", { type: "button", class: kind, "data-for": id, click }, icon(path), more);
}

export const likeButton = (id, words = null) =>
  button("like", id, HEART, words && el("span", {}, words));
export const hideButton = (id) => button("hide", id, CROSS);

/** Update all links and buttons after a change of the address. */
export function sync() {
  for (const link of document.querySelectorAll("a[data-view]")) {
    const { view } = link.dataset;
    link.href = address(view === "model" ? { view } : { view, user: null });
    if (view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const link of document.querySelectorAll("a[data-user]"))
    link.href = address({ view: "users", user: link.dataset.user });
  for (const link of document.querySelectorAll("a[data-item]"))
    link.href = address({ view: "item", item: link.dataset.item });
  const whose = state.user === null ? "your list" : state.user;
  for (const one of document.querySelectorAll("button.like, button.hide")) {
    const id = one.dataset.for;
    const isLike = one.matches(".like");
    const isOn = state[isLike ? basket() : "hide"].includes(id);
    one.setAttribute("aria-pressed", String(isOn));
    // A screen reader needs different names for the buttons.
    const words = isLike ? `Like ${nameOf(id)}: adds it to ${whose}` : `Hide ${nameOf(id)}`;
    one.setAttribute("aria-label", words);
    one.title = isLike ? "Like: the list follows" : "Hide: never in the list";
  }
  // A hidden item leaves the lists at once, before the service has answered.
  for (const row of document.querySelectorAll(".ranked > li"))
    row.classList.toggle("gone", state.hide.includes(row.dataset.id));
  const count = $("#count");
  count.hidden = !state.have.length;
  count.textContent = String(state.have.length);
}
