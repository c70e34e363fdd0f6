// The landing: what this is, and a few people with their lists.

import { ask } from "./api.js";
import { $, el, plural, styled } from "./dom.js";
import { itemLink, remember, sync } from "./items.js";

/** Return a round mark with the first letter of an id, in a color of its own. */
export function avatar(user) {
  const text = String(user);
  const hash = [...text].reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) % 360, 7);
  const first = [...new Intl.Segmenter().segment(text)][0]?.segment ?? "?";
  const mark = el("span", { class: "avatar", "aria-hidden": "true" }, first.toLocaleUpperCase());
  return styled(mark, { "--hue": String(hash) });
}

/** Say in one sentence what this is. */
export function sentenceOf(card) {
  const choices = card.num_pairs ? `${plural(card.num_pairs, "choice")} of ` : "";
  const people = plural(card.num_users, "person", "people");
  const among = plural(card.num_items, "item");
  const data = `${choices}${people} among ${among} (${card.dataset})`;
  return `A recommender: from ${data}, ${card.model} has learned what each may want next.`;
}

export async function showPeople(signal) {
  const people = await ask("examples", { signal });
  $("#people").replaceChildren(...people.map(person));
  sync();
}

function person({ user, total, items, recommended }) {
  remember([...items, ...recommended]);
  const id = String(user);
  const has = total ? `has ${plural(total, "item")}` : "";
  const name = el("a", { class: "name id who", "data-user": id, dir: "auto", title: id }, id);
  const head = el(
    "div",
    { class: "head" },
    avatar(user),
    el("div", {}, el("h2", {}, name), el("p", { class: "sub" }, has)),
  );
  const list = (kind, words, some) => {
    const rows = some.map(({ item }) => el("li", {}, itemLink(item)));
    const ordered = el(kind === "next" ? "ol" : "ul", { role: "list" }, ...rows);
    return el("div", { class: kind }, el("h3", {}, words), ordered);
  };
  const had = items.length ? list("had", "Has", items) : null;
  return el("li", { class: "person panel" }, head, had, list("next", "Recommended", recommended));
}
