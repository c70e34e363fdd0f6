// An item: what is similar to it.

import { $, plural } from "./dom.js";
import { idTag, learnNames, likeButton, nameOf, sync } from "./items.js";
import { loading, orUnknown } from "./loading.js";
import { results, wanted } from "./results.js";
import { state } from "./state.js";

const list = results($("#item-results"));

export const filterSimilar = () => list.filter();

export const loadItem = loading($("#item"), async (signal) => {
  const { item, hide } = state;
  showTitle(item);
  list.chips();
  const request = { path: "similar", body: { item, k: wanted() }, subject: item, say };
  await orUnknown(list.show(signal, request), "The model does not know this item.");
  await learnNames([item], signal);
  showTitle(item, likeButton(item, "Like"));
  await list.learn([...state.have, ...state.like, ...hide], signal);
});

const say = (_, items) =>
  items.length ? `${plural(items.length, "item")}, the most similar first.` : "No similar items.";

function showTitle(item, ...more) {
  const title = $("#item-title");
  title.textContent = nameOf(item);
  title.title = String(item);
  title.classList.toggle("id", nameOf(item) === String(item));
  $("#item-line").replaceChildren(...[idTag(item), ...more].filter(Boolean));
  sync();
  // The name may arrive after the user has moved to another view.
  if (state.view === "item" && state.item === item) document.title = `${nameOf(item)} · mgformer`;
}
