// The bar beside a score, on a scale that all scores of one list share.

import { el, figure, styled } from "./dom.js";

const SHORTEST = 0.06; // part of a bar that the lowest of several negative scores keeps

/**
 * Return the scale of a list: `part` gives where the bar of a score starts and ends, between 0
 * and 1; `zero` is the place of zero if scores lie on both sides; `words` explain it.
 */
export function scaleOf(scores) {
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const length = high - low || 1;
  if (low >= 0) {
    const words = `Bars start at 0 and end at the highest score shown, ${figure(high)}.`;
    return { part: (score) => [0, high > 0 ? score / high : 0], zero: null, words };
  }
  if (high <= 0) {
    const part = (score) => [0, SHORTEST + (1 - SHORTEST) * ((score - low) / length)];
    const from = `from the lowest score shown, ${figure(low)}, to the highest, ${figure(high)}`;
    return { part, zero: null, words: `No score is above 0. Bars run ${from}.` };
  }
  const zero = -low / length;
  const part = (score) => {
    const end = (score - low) / length;
    return [Math.min(zero, end), Math.max(zero, end)];
  };
  const words =
    "Bars start at the mark, which is 0. Scores above 0 go to the right, those below to the left.";
  return { part, zero, words };
}

export function barOf(score, scale) {
  const [from, to] = scale.part(score);
  const percent = (part) => `${(100 * part).toFixed(1)}%`;
  const side = scale.zero === null ? "" : score < 0 ? " below" : " above";
  const bar = el("span", { class: `bar${side}`, "aria-hidden": "true" });
  return styled(bar, {
    "--from": percent(from),
    "--length": percent(to - from),
    ...(scale.zero === null ? {} : { "--zero": percent(scale.zero) }),
  });
}
