// The state of the page is in its address, so links and the back button work:
// #users, #users?user=U&like=I, #history?have=I, #item?item=I, #model; for all of them
// hide=I, only=ATTRIBUTE:VALUE, k=N, filter=TEXT, model=NAME and vs=NAME. like and have are items that a list starts
// from: like for the user shown, have for the visitor's own list.

const VIEWS = ["users", "history", "item", "model"];
export const K = 20;

export let state = parse();

export function readAddress() {
  state = parse();
}

/** Return the current address with changes. */
export function address(changes) {
  const next = { ...state, ...changes };
  const isElsewhere = ["view", "user", "item"].some((name) => next[name] !== state[name]);
  if (isElsewhere && changes.filter === undefined) next.filter = "";
  if (next.user !== state.user && changes.like === undefined) next.like = [];
  const query = new URLSearchParams();
  const set = (name, value) => value !== null && value !== "" && query.set(name, value);
  set("user", next.user);
  set("item", next.view === "item" ? next.item : null);
  for (const name of ["have", "like", "hide", "only"]) for (const id of next[name]) query.append(name, id);
  set("k", next.k === K ? null : next.k);
  for (const name of ["filter", "model", "vs"]) set(name, next[name]);
  return query.size ? `#${next.view}?${query}` : `#${next.view}`;
}

/** Go to another address. Listeners have run when this returns. */
export function go(changes, { replace = false } = {}) {
  const to = address(changes);
  if (replace) history.replaceState({ seen: true }, "", to);
  else history.pushState(null, "", to);
  dispatchEvent(new Event("hashchange"));
}

/** Which items a like adds to: those of the user shown, or the visitor's own. */
export const basket = () => (state.user === null ? "have" : "like");

/** Add an item to a list of the state, such as "hide", or remove it. */
export function toggle(name, id) {
  const has = state[name].includes(id);
  const others = (list) => list.filter((other) => other !== id);
  const changes = { [name]: has ? others(state[name]) : [...state[name], id] };
  // An item is either liked or hidden.
  const opposite = name === "hide" ? basket() : "hide";
  if (!has && state[opposite].includes(id)) changes[opposite] = others(state[opposite]);
  go(changes);
}

function parse() {
  const [view, ...rest] = location.hash.slice(1).split("?");
  const query = new URLSearchParams(rest.join("?"));
  const text = (name) => query.get(name) || null;
  const ids = (name) => [...new Set(query.getAll(name))];
  const item = query.get("item");
  const isKnown = VIEWS.includes(view) && (view !== "item" || item !== null);
  const k = Number(query.get("k"));
  return {
    view: isKnown ? view : "users",
    user: text("user"),
    item,
    have: ids("have"),
    like: ids("like"),
    hide: ids("hide"),
    only: ids("only").filter((one) => one.includes(":")),
    k: Number.isInteger(k) && k > 0 ? k : K,
    filter: text("filter") ?? "",
    model: text("model"),
    vs: text("vs"),
  };
}
