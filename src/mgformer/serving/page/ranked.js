// A ranked list: rows with reasons, scores and buttons; the filter; what two models agree on.

import { barOf, scaleOf } from "./bars.js";
import { $, el, figure } from "./dom.js";
import { factsOf } from "./filters.js";
import { hideButton, idTag, itemLink, likeButton, nameOf, remember, sync } from "./items.js";
import { state } from "./state.js";

/** Show items, best first. With the list of another model, tell where each item stands there. */
export function showRanked(list, items, { before = null, other = null, otherName = "" } = {}) {
  remember(items);
  for (const { because } of items) remember(because ?? []);
  const scale = items.length ? scaleOf(items.map(({ score }) => score)) : null;
  const places = other && new Map(other.map(({ item }, place) => [String(item), place + 1]));
  const rows = items.map((one, place) => {
    const id = String(one.item);
    const isFresh = before !== null && !before.has(id);
    const title = el("p", { class: "title" }, itemLink(id), " ", idTag(id));
    const facts = factsOf(one.attributes);
    const what = el("div", { class: "what" }, title, facts, reasons(one.because));
    if (places) what.append(standing(places.get(id), otherName));
    const label = el("span", { class: "unseen" }, "score ");
    const score = el("span", { class: "score" }, label, figure(one.score), barOf(one.score, scale));
    const acts = el("span", { class: "acts" }, likeButton(id), hideButton(id));
    const rank = el("span", { class: "rank" }, String(place + 1));
    return el("li", { "data-id": id, class: isFresh ? "fresh" : null }, rank, what, score, acts);
  });
  keepFocus(list, () => list.replaceChildren(...rows));
  sync();
  return scale;
}

function reasons(because) {
  if (!because?.length) return null;
  const links = because.map((reason) => itemLink(reason.item));
  const parts = links.flatMap((link, place) => (place ? [", ", link] : [link]));
  return el("p", { class: "why" }, "because of ", ...parts);
}

function standing(place, name) {
  const words = place ? `also in ${name}, at ${place}` : `not in ${name}`;
  return el("p", { class: place ? "standing" : "standing alone" }, words);
}

/** Replace the rows. A press on a button may remove its row: the next row gets the focus. */
function keepFocus(list, replace) {
  const active = document.activeElement;
  const kind = active?.classList?.[0];
  const place = [...list.children].findIndex((row) => row.contains(active));
  replace();
  if (place < 0) return;
  const row = list.children[Math.min(place, list.children.length - 1)];
  ((kind && row && $(`button.${kind}`, row)) ?? $("a", row ?? list))?.focus({
    preventScroll: true,
  });
}

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Show only the rows that contain the text of the filter; returns how many of all match. */
export function filterRows(list) {
  const text = plain(state.filter.trim());
  let matching = 0;
  for (const row of list.children) {
    const { id } = row.dataset;
    const isMatching = plain(`${nameOf(id)} ${id}`).includes(text);
    row.hidden = !isMatching;
    matching += isMatching;
  }
  return [matching, list.children.length];
}
