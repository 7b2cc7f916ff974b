// Builds elements. Text is always a text node, so a name that contains HTML is shown and never interpreted.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "href") {
      const address = safeAddress(value);
      if (address !== null) made.setAttribute("href", address);
    } else made.setAttribute(name, value === true ? "" : String(value));
  }
  add(made, children);
  return made;
}

export function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "fill" || name === "stroke") made.style.setProperty(name, value);
    else made.setAttribute(name, String(value));
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children.flat()) {
    if (child === undefined || child === null) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

// Addresses of this server and of http(s) servers; null for any other, such as javascript:.
export function safeAddress(text) {
  const address = String(text).trim();
  if (/^\/(?![/\\])/.test(address) || /^[?#]/.test(address)) return address;
  try {
    const parsed = new URL(address);
    return parsed.protocol === "http:" || parsed.protocol === "https:" ? parsed.href : null;
  } catch {
    return null;
  }
}

// A colour of the style sheet, as canvas needs it.
export function styleColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
