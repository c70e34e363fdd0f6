// The state of the page is in its address, so links and the back button work:
// #users?user=U, #history, #item?item=I, #model, each with have=I for every item of the history.

const VIEWS = ["users", "history", "item", "model"];

export let state = parse();

export function readAddress() {
  state = parse();
}

/** Return the current address with changes. */
export function address(changes) {
  const { view, user, item, have } = { ...state, ...changes };
  const query = new URLSearchParams();
  if (user !== null) query.set("user", user);
  if (view === "item") query.set("item", item);
  for (const id of have) query.append("have", id);
  return query.size ? `#${view}?${query}` : `#${view}`;
}

/** Go to another address. Listeners have run when this returns. */
export function go(changes) {
  history.pushState(null, "", address(changes));
  dispatchEvent(new Event("hashchange"));
}

/** Add an item to the history, or remove it. */
export function toggle(id) {
  const { have } = state;
  go({ have: have.includes(id) ? have.filter((other) => other !== id) : [...have, id] });
}

function parse() {
  const [view, ...rest] = location.hash.slice(1).split("?");
  const query = new URLSearchParams(rest.join("?"));
  const [user, item] = [query.get("user") || null, query.get("item")];
  const known = VIEWS.includes(view) && (view !== "item" || item !== null);
  return { view: known ? view : "users", user, item, have: [...new Set(query.getAll("have"))] };
}
