// Shows the drawing of a graph. It is built again, element by element: nothing of the image except shapes and texts
// gets into the page.

const SVG = "http://www.w3.org/2000/svg";

const ELEMENTS = {
  svg: ["viewBox", "width", "height", "role"],
  g: [],
  title: [],
  rect: ["x", "y", "width", "height", "rx", "class"],
  circle: ["cx", "cy", "r", "class"],
  path: ["d", "class"],
  polygon: ["points", "class"],
  text: ["x", "y", "text-anchor", "class"],
};

function copied(from) {
  const attributes = ELEMENTS[from.localName];
  if (!attributes || from.namespaceURI !== SVG) return null;
  const element = document.createElementNS(SVG, from.localName);
  for (const name of attributes) if (from.hasAttribute(name)) element.setAttribute(name, from.getAttribute(name));
  for (const child of from.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) element.append(document.createTextNode(child.data));
    else if (child.nodeType === Node.ELEMENT_NODE) {
      const copy = copied(child);
      if (copy) element.append(copy);
    }
  }
  return element;
}

/** Reads an SVG text, and returns an element that can be shown, with the boxes of the nodes by their names. */
export function drawing(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const root = parsed.documentElement;
  if (root.localName !== "svg" || parsed.querySelector("parsererror"))
    throw new Error("the drawing of the graph cannot be read");
  const element = copied(root);
  const boxes = new Map();
  for (const group of element.querySelectorAll("g")) {
    const title = group.querySelector(":scope > title")?.textContent ?? "";
    const shape = group.querySelector(":scope > .box");
    if (shape && !shape.classList.contains("of_start") && !shape.classList.contains("of_end"))
      boxes.set(title.split("\n")[0], group);
  }
  return { element, boxes };
}
