// Small charts, as elements and SVG: bars beside each other, parts of a whole, a curve.

import { el, figure, styled, svg } from "./dom.js";

/** Rows of bars. Each row is [label, [[series, value], …]]; all bars share one scale from 0. */
export function barChart(rows) {
  const highest = Math.max(...rows.flatMap(([, bars]) => bars.map(([, value]) => value)), 1e-12);
  const bar = ([series, value]) => {
    const line = styled(el("span", { class: "line" }), {
      "--length": `${(100 * value) / highest}%`,
    });
    return el(
      "div",
      { class: `one ${series.toLowerCase()}` },
      line,
      el("span", { class: "value" }, value.toFixed(3)),
      el("span", { class: "unseen" }, ` ${series}`),
    );
  };
  const row = ([label, bars]) =>
    el("div", { class: "row" }, el("dt", {}, label), el("dd", {}, ...bars.map(bar)));
  return el("dl", { class: "bars" }, ...rows.map(row));
}

/** One bar of parts: [label, value]. */
export function partsChart(parts) {
  const total = parts.reduce((sum, [, value]) => sum + value, 0) || 1;
  const share = (value) => `${((100 * value) / total).toFixed(0)}%`;
  const piece = ([, value], place) =>
    styled(el("span", { class: `piece p${place}` }), { "--share": `${(100 * value) / total}%` });
  const entry = ([label, value], place) =>
    el(
      "li",
      {},
      el("span", { class: `dot p${place}`, "aria-hidden": "true" }),
      el("b", {}, share(value)),
      ` ${label}`,
    );
  return el(
    "div",
    {},
    el("div", { class: "parts", "aria-hidden": "true" }, ...parts.map(piece)),
    el("ul", { class: "legend", role: "list" }, ...parts.map(entry)),
  );
}

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [520, 220, 52, 28, 12];

/** A curve through [x, y] points; `chosen` is the x that is marked. The y axis fits the curve. */
export function curve(points, { chosen, name, across }) {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const x = (value) => LEFT + ((WIDTH - LEFT - 12) * (value - x0)) / (x1 - x0 || 1);
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (y1 - value)) / (y1 - y0 || 1);
  const text = (at, words, more) => svg("text", { x: at[0], y: at[1], ...more }, words);
  const ticks = [...new Set([y0, (y0 + y1) / 2, y1])].map((value) =>
    svg(
      "g",
      {},
      svg("line", { x1: LEFT, x2: WIDTH - 12, y1: y(value), y2: y(value), class: "grid" }),
      text([LEFT - 8, y(value) + 4], figure(value), { "text-anchor": "end" }),
    ),
  );
  const path = points
    .map(([one, other], place) => `${place ? "L" : "M"}${x(one).toFixed(1)} ${y(other).toFixed(1)}`)
    .join("");
  const best = points.find(([one]) => one === chosen) ?? null;
  const mark = best && svg("circle", { cx: x(best[0]), cy: y(best[1]), r: 5, class: "best" });
  const course = `${name} by ${across}, from ${figure(ys[0])} to ${figure(ys.at(-1))}`;
  const choice = best ? `; ${across} ${chosen} was chosen, with ${figure(best[1])}` : "";
  return svg(
    "svg",
    {
      class: "curve",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": course + choice,
    },
    ...ticks,
    text([LEFT, HEIGHT - 8], `${across} ${x0}`),
    text([WIDTH - 12, HEIGHT - 8], String(x1), { "text-anchor": "end" }),
    svg("path", { d: path, class: "path" }),
    mark,
  );
}
