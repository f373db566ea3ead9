// Elements from data. Text only ever becomes text: names and answers that others wrote can't become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `attributes` may hold listeners (`onclick`), properties of forms, and `class`; null and false leave one out. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Set a node's text if it differs, so that screen readers hear of changes alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Keep one node an item in `parent`, in the order of `items`. Those whose key is known are updated in place, so that focus
 * stays; of several with the same key, the first is matched with the first.
 */
export function keep(parent, items, keyOf, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const numSeen = new Map();
  let before = parent.firstElementChild;
  for (const [index, item] of items.entries()) {
    const plainKey = String(keyOf(item, index));
    const key = `${plainKey} ${numSeen.get(plainKey) ?? 0}`;
    numSeen.set(plainKey, (numSeen.get(plainKey) ?? 0) + 1);
    let node = known.get(key);
    known.delete(key);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = key;
    }
    update(node, item);
    if (node === before) before = before.nextElementSibling;
    else parent.insertBefore(node, before);
  }
  for (const node of known.values()) node.remove();
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
