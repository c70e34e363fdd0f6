// Where a list comes from, in words.

import { plural } from "./dom.js";

export function sentence({ user, source, unknown = [] }, items) {
  if (!items.length) return "There is nothing left to recommend.";
  const count = plural(items.length, "item");
  if (source === "model")
    return `${count}, best first, based on what the model learned about this user.`;
  if (source === "attributes")
    return `${count}, best first, predicted from what is known about this user.`;
  const basis = user === null ? "the items in the history" : "the items this user has";
  if (source === "history") return `${count}, best first, based on ${basis}.`;
  const why = unknown.length ? "The model knows none of these items" : "The history is empty";
  return `${why}, so these are the ${count} that are most popular.`;
}
