// The model card: the model in service, its data, and its figures.

import { $, el, figure } from "./dom.js";

export function showCard(card) {
  const text = (value) => (typeof value === "number" ? value.toLocaleString("en") : value);
  const { library } = card;
  const facts = {
    Model: card.model,
    Dataset: card.dataset,
    Fingerprint: card.fingerprint && el("code", {}, card.fingerprint),
    Protocol: card.protocol,
    Seed: card.seed === undefined ? null : String(card.seed),
    Users: text(card.num_users),
    Items: text(card.num_items),
    Epochs: card.epochs ? text(card.epochs) : null,
    "Trained in": card.seconds?.train === undefined ? null : `${figure(card.seconds.train)} s`,
    Library: library && `mgformer ${library}`,
    Commit: card.commit && el("code", {}, card.commit),
    Bundle: card.bundle && el("code", {}, card.bundle),
  };
  const known = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined);
  $("#facts").replaceChildren(
    ...known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
  const columns = [
    ["Test", card.test],
    ["Validation", card.valid],
    ["Popularity", card.popularity],
  ];
  const present = columns.filter(([, values]) => values && Object.keys(values).length);
  const all = [...new Set(present.flatMap(([, values]) => Object.keys(values)))];
  const first = all.filter((name) => /^(recall|ndcg)@/.test(name));
  const rest = all.filter((name) => !first.includes(name));
  $("#figures-note").textContent = figuresNote(present);
  $("#figures").replaceChildren(...(first.length ? [metricTable(first, present)] : []));
  $("#more-figures div").replaceChildren(metricTable(rest, present));
  $("#more-figures").hidden = !rest.length;
  $("#config div").replaceChildren(configTable(card.config ?? {}));
  $("#config").hidden = !card.config;
}

function figuresNote(columns) {
  if (!columns.length) return "No figures were recorded.";
  const hasPopularity = columns.some(([name]) => name === "Popularity");
  return hasPopularity ? "Popularity: the same test with the most popular items." : "";
}

function metricTable(names, columns) {
  const header = ["Metric", ...columns.map(([name]) => name)];
  const cell = (value) => el("td", {}, typeof value === "number" ? value.toFixed(4) : "–");
  const row = (name) => {
    const cells = columns.map(([, values]) => cell(values[name]));
    return el("tr", {}, el("th", { scope: "row" }, label(name)), ...cells);
  };
  const head = el("tr", {}, ...header.map((name) => el("th", { scope: "col" }, name)));
  const body = el("tbody", {}, ...names.map(row));
  return el("table", { class: "figures" }, el("thead", {}, head), body);
}

function label(metric) {
  const known = { ndcg: "NDCG", mrr: "MRR", map: "MAP", hitrate: "Hit rate" };
  const [name, k] = metric.split("@");
  const words = known[name] ?? name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
  return k ? `${words}@${k}` : words;
}

function configTable(config) {
  const rows = Object.entries(config).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.entries(value).map(([inner, one]) => [`${name}.${inner}`, one])
      : [[name, value]],
  );
  const row = ([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text));
  };
  return el("table", { class: "config" }, el("tbody", {}, ...rows.map(row)));
}
