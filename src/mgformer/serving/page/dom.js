// Helpers to make elements. Text from the data always stays text.

export const $ = (selector, root = document) => root.querySelector(selector);

/** Make an element. Attributes that are functions become listeners; strings become text nodes. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Format a number with three significant digits (0.0120, 4.57); integers stay as they are. */
export function figure(number) {
  const whole = Number.isInteger(number) || Math.abs(number) >= 1000;
  const three = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  return number.toLocaleString("en", whole ? { maximumFractionDigits: 0 } : three);
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
