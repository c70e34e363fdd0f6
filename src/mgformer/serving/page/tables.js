// Tables of figures and of options.

import { el } from "./dom.js";

export function metricTable(names, columns) {
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

export function label(metric) {
  const known = { ndcg: "NDCG", mrr: "MRR", map: "MAP", hitrate: "Hit rate" };
  const [name, k] = metric.split("@");
  const words = known[name] ?? name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
  return k ? `${words}@${k}` : words;
}

export function configTable(config) {
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
