// A page's variables: their values, what is chosen, and their place in queries and links.

import { asked } from "./ask.js";

export const ALL = "$__all";
const PATTERN = /\$\{([A-Za-z_][\w.]*(?:\["[^"]*"\])?)(?::([a-z]+))?\}|\[\[(\w+)(?::([a-z]+))?\]\]|\$(\w+)/g;
const QUERY_RESULT = /^query_result\(([\s\S]+)\)$/;
const LABEL_VALUES = /^label_values\(\s*(?:([\s\S]+),\s*)?([A-Za-z_]\w*)\s*\)$/;

const regexEscape = (text) => text.replace(/[\\^$*+?.()|[\]{}/]/g, "\\$&").replace(/\\/g, "\\\\").replace(/"/g, '\\"');
const plainEscape = (text) => text.replace(/\\/g, "\\\\").replace(/"/g, '\\"');

export class Variables {
  constructor(model, parameters) {
    this.list = (model.templating?.list ?? []).filter((each) => each.type !== "datasource" && each.type !== "adhoc");
    this.options = new Map();
    this.texts = new Map();
    this.chosen = new Map();
    this.builtin = new Map();
    for (const variable of this.list) {
      const given = parameters.getAll(`var-${variable.name}`).filter((each) => each !== "" || !variable.multi);
      const current = [variable.current?.value ?? []].flat().map(String);
      const first = variable.includeAll ? [ALL] : [];
      this.chosen.set(variable.name, given.length ? given : current.length ? current : first);
    }
  }

  // Asks for the values of each variable in order, as a later one may depend on an earlier one.
  async load(time, signal) {
    for (const variable of this.list) {
      const found = await this.values(variable, time, signal);
      const values = found.map(({ value }) => value);
      this.options.set(variable.name, values);
      this.texts.set(variable.name, new Map(found.map(({ value, text }) => [value, text])));
      const chosen = this.chosen.get(variable.name);
      const gone = !variable.multi && !variable.includeAll && !values.includes(chosen[0]);
      if ((!chosen.length || gone) && values.length) this.chosen.set(variable.name, [values[0]]);
    }
  }

  async values(variable, time, signal) {
    if (variable.type === "custom" || variable.type === "interval") return String(variable.query?.query ?? variable.query ?? "").split(",").map((each) => plain(each.trim().replace(/^.* : /, ""))).filter(({ value }) => value);
    if (variable.type === "constant" || variable.type === "textbox") return [plain(String(variable.query ?? ""))].filter(({ value }) => value);
    const text = typeof variable.query === "string" ? variable.query : variable.query?.query ?? "";
    const whole = QUERY_RESULT.exec(text.trim());
    if (whole) return this.ordered(variable, tiesByName(variable.regex, await asked("query", { query: this.inQuery(whole[1]), time }, signal)));
    const found = LABEL_VALUES.exec(text.trim());
    if (!found) return [];
    const [, selector, label] = found;
    const series = this.inQuery(selector ?? `{${label}!=""}`);
    const ask = (text) => asked("query", { query: `group by (${label}) (${text})`, time }, signal);
    let answer = await ask(series);
    // Nothing is measured now: values of the page's time range, so that the past is still drawn, with its age.
    // It keeps the names of metrics, without which series of two metrics would be equal.
    if (!answer.length) answer = await ask(`last_over_time(${series}[${this.builtin.get("__range")}])`);
    return this.ordered(variable, answer.map((each) => each.metric[label] ?? "").filter((each) => each !== "").map((each) => matched(variable.regex, each)).filter(Boolean));
  }

  // Each value once; in the order of the answer where the variable asks for no other.
  ordered(variable, found) {
    const unique = [...new Map(found.map((each) => [each.value, each])).values()];
    return variable.sort === 0 ? unique : unique.sort((left, right) => left.text.localeCompare(right.text, "en", { numeric: true }));
  }

  textOf(name, value) {
    return value === ALL ? "All" : this.texts.get(name)?.get(value) ?? value;
  }

  // Values of one variable, as a list; "all" is every value that is known.
  chosenValues(name) {
    const chosen = this.chosen.get(name) ?? [];
    return chosen.includes(ALL) ? this.options.get(name) ?? [] : chosen;
  }

  inQuery(text, scoped = {}) {
    return this.substitute(text, (name, format) => this.valueInQuery(name, format, scoped));
  }

  valueInQuery(name, format, scoped) {
    if (scoped[name] !== undefined) return regexEscape(scoped[name]);
    if (this.builtin.has(name)) return this.builtin.get(name);
    const variable = this.list.find((each) => each.name === name);
    if (!variable) return undefined;
    const chosen = this.chosen.get(name) ?? [];
    const several = variable.multi || variable.includeAll;
    if (chosen.includes(ALL)) return variable.allValue ?? (this.narrowedByNone(variable) ? ".+" : undefined) ?? `(${(this.options.get(name) ?? []).map(regexEscape).join("|")})`;
    if (format === "raw") return chosen.join(",");
    if (format === "pipe") return chosen.join("|");
    const escape = several || format === "regex" ? regexEscape : plainEscape;
    return chosen.length > 1 ? `(${chosen.map(escape).join("|")})` : escape(chosen[0] ?? "");
  }

  // Whether a variable that others narrow is narrowed by none of them now: then all of its values are a pattern, not a
  // list of a thousand nodes that stands ten times in a query.
  narrowedByNone(variable) {
    const text = String(variable.query?.query ?? variable.query ?? "");
    const narrowing = this.list.filter(({ name }) => name !== variable.name && new RegExp(`\\$\\{?${name}\\b`).test(text));
    return narrowing.length > 0 && narrowing.every(({ name }) => (this.chosen.get(name) ?? []).includes(ALL));
  }

  // Text that people read: titles, descriptions, text panels.
  inText(text, scoped = {}) {
    return this.substitute(text, (name, format) => {
      if (scoped[name] !== undefined) return scoped[name];
      if (this.builtin.has(name)) return this.builtin.get(name);
      if (!this.chosen.has(name)) return undefined;
      return this.chosen.get(name).map((each) => (format === "raw" ? each : this.textOf(name, each))).join(" + ");
    });
  }

  // A link of the model; `values` answers for `__field.labels.x`, `__data.fields.x`, `__value.raw` and the like.
  inLink(text, values = () => undefined, scoped = {}) {
    const filled = this.substitute(text, (name, format) => {
      if (name === "__url_time_range") return this.builtin.get("__url_time_range");
      if (name === "__all_variables") return this.narrowed().toString();
      const own = values(name);
      if (own !== undefined) return encodeURIComponent(own);
      if (name === "datasource") return "";
      if (name.startsWith("__data") || name.startsWith("__field") || name.startsWith("__value")) return "";
      const chosen = scoped[name] !== undefined ? [scoped[name]] : this.chosen.get(name);
      if (!chosen) return this.builtin.has(name) ? encodeURIComponent(this.builtin.get(name)) : undefined;
      if (format === "queryparam") return new URLSearchParams(chosen.filter((each) => each !== ALL).map((each) => [`var-${name}`, each])).toString();
      return chosen.map(encodeURIComponent).join(",");
    });
    return ownAddress(filled).replace(/&{2,}/g, "&").replace(/\?&/, "?");
  }

  substitute(text, value) {
    return String(text).replace(PATTERN, (whole, braced, format, square, squareFormat, bare) => {
      const found = value(braced ?? square ?? bare, format ?? squareFormat);
      return found === undefined ? whole : found;
    });
  }

  parameters() {
    const made = new URLSearchParams();
    for (const [name, chosen] of this.chosen) for (const each of chosen) made.append(`var-${name}`, each);
    return made;
  }

  // For links: a page that opens on one value, such as the worst node, does so where no value is chosen here.
  narrowed() {
    return new URLSearchParams([...this.parameters()].filter(([, value]) => value !== ALL));
  }
}

const plain = (value) => ({ value, text: value });

// Options in the order of the answer; those of one value, which Prometheus gives in any order, by name.
function tiesByName(regex, answer) {
  const places = new Map();
  const found = answer.map((each) => ({ option: matched(regex, sampleText(each)), number: each.value?.[1] })).filter(({ option }) => option);
  for (const { number } of found) if (!places.has(number)) places.set(number, places.size);
  found.sort((left, right) => places.get(left.number) - places.get(right.number) || left.option.text.localeCompare(right.option.text, "en", { numeric: true }));
  return found.map(({ option }) => option);
}

// A sample as Grafana's query_result writes it, for the variable's expression.
function sampleText({ metric, value }) {
  const labels = Object.entries(metric).filter(([name]) => name !== "__name__").sort(([left], [right]) => (left < right ? -1 : 1));
  return `${metric.__name__ ?? ""}{${labels.map(([name, text]) => `${name}="${text}"`).join(",")}} ${value?.[1] ?? ""} ${Math.round((value?.[0] ?? 0) * 1e3)}`;
}

// Value and text of an option; undefined where the variable's expression does not match.
function matched(regex, text) {
  if (!regex) return plain(text);
  let found;
  try {
    const [, pattern, flags] = /^\/([\s\S]*)\/([a-z]*)$/.exec(regex) ?? [null, regex, ""];
    found = new RegExp(pattern, flags.replace("g", "")).exec(text);
  } catch {
    return undefined;
  }
  if (!found) return undefined;
  const value = found.groups?.value ?? found.groups?.text ?? found[1] ?? found[0];
  return { value, text: found.groups?.text ?? value };
}

// Grafana's address of a dashboard, as the same page here.
export function ownAddress(address) {
  return String(address).replace(/^\/?d\/([\w-]+)(?:\/[\w-]+)?(?=[?#]|$)/, "/pages/$1");
}
