// Helpers to make elements. Text from the data always stays text.

export const $ = (selector, root = document) => root.querySelector(selector);

/** Make an element. Attributes that are functions become listeners; strings become text nodes. */
export const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** Make an element of SVG. */
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function fill(node, attributes = {}, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set custom properties of CSS. The policy of the page forbids the attribute `style`. */
export function styled(node, properties) {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  return node;
}

/** Make an icon of one path in a square of 24. */
export const icon = (path) =>
  svg(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" },
    svg("path", { d: path }),
  );

/** Format a number with three significant digits (0.0120, 4.57); integers stay as they are. */
export function figure(number) {
  const whole = Number.isInteger(number) || Math.abs(number) >= 1000;
  const three = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  return number.toLocaleString("en", whole ? { maximumFractionDigits: 0 } : three);
}

export function plural(count, noun, many = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : many}`;
}
