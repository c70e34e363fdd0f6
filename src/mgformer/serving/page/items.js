// How an item is shown: its name as a link to similar items, its id, and a button for the history.

import { ask } from "./api.js";
import { $, el, figure } from "./dom.js";
import { address, state, toggle } from "./state.js";

const names = new Map(); // by id; null for an item without a name

export const nameOf = (id) => names.get(String(id)) ?? String(id);
const hasName = (id) => nameOf(id) !== String(id);

export function remember(items) {
  for (const { item, name } of items) names.set(String(item), name ?? null);
  return items;
}

/** Load the names of items. An address has only ids. The model must know all of them. */
export async function learnNames(ids, signal) {
  const unnamed = (some) => some.filter((id) => !names.has(id));
  let left = unnamed(ids);
  while (left.length) {
    // With these options the answer lists the candidates, up to the largest k of the service.
    const body = { history: [], candidates: left, exclude_seen: false };
    remember((await ask("recommend", { body, signal })).items);
    const rest = unnamed(left);
    if (rest.length === left.length) return; // the service writes these ids differently, as 3 for 03
    left = rest;
  }
}

export const itemLink = (id) =>
  el("a", { class: "name", "data-item": id, dir: "auto" }, nameOf(id));

/** The id beside a name; null if the item has no name. */
export const idTag = (id) =>
  hasName(id) ? el("span", { class: "id", dir: "auto" }, String(id)) : null;

export function addButton(id, where = "") {
  const click = () => toggle(String(id));
  return el("button", { type: "button", class: "add", "data-add": id, "data-where": where, click });
}

/** Show items, best first, with their reasons if there are any. */
export function showRanked(list, items) {
  remember(items);
  for (const { because } of items) remember(because ?? []);
  const most = Math.max(...items.map(({ score }) => score));
  const rows = items.map(({ item, score, because }) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--part", most > 0 ? Math.max(0, score / most).toFixed(3) : 0);
    const links = (because ?? []).map((reason) => itemLink(reason.item));
    const reasons = links.flatMap((link, place) => (place ? [", ", link] : [link]));
    const title = el("p", { class: "title" }, itemLink(item), " ", idTag(item));
    const why = reasons.length ? el("p", { class: "why" }, "because of ", ...reasons) : null;
    const unseen = el("span", { class: "unseen" }, "score ");
    const shown = el("span", { class: "score" }, unseen, figure(score), bar);
    return el("li", {}, el("div", {}, title, why), shown, addButton(item));
  });
  list.replaceChildren(...rows);
  sync();
}

/** Update all links and buttons after a change of the address. Links keep the history. */
export function sync() {
  for (const link of document.querySelectorAll("a[data-view]")) {
    link.href = address({ view: link.dataset.view });
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const link of document.querySelectorAll("a[data-user]"))
    link.href = address({ view: "users", user: link.dataset.user });
  for (const link of document.querySelectorAll("a[data-item]"))
    link.href = address({ view: "item", item: link.dataset.item });
  for (const button of document.querySelectorAll("button[data-add]")) {
    const { add: id, where } = button.dataset;
    const has = state.have.includes(id);
    button.classList.toggle("has", has);
    button.textContent = `${has ? "Added" : "Add"}${where}`;
    // A screen reader needs different names for the buttons.
    const label = `${button.textContent}: ${nameOf(id)}${has ? ", press to remove" : ""}`;
    button.setAttribute("aria-label", label);
  }
  const count = $("#count");
  count.hidden = !state.have.length;
  count.textContent = String(state.have.length);
}
