// Prometheus' answers as series and tables, and Grafana's transformations of tables.

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function legend(target, metric) {
  const format = target.legendFormat;
  if (format && format !== "__auto") return format.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (_, label) => metric[label] ?? "");
  const labels = Object.entries(metric).filter(([name]) => name !== "__name__");
  const text = labels.length === 1 ? labels[0][1] : labels.map(([name, value]) => `${name}="${value}"`).join(", ");
  return labels.length === 1 ? text : `${metric.__name__ ?? ""}${text ? `{${text}}` : ""}` || "Value";
}

const number = (text) => (text === "NaN" ? NaN : text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

// One series per result; `times` in seconds. A result that is native histograms alone has no numbers.
export function seriesOf(target, result) {
  return result.map((each) => {
    const points = each.values ?? (each.value ? [each.value] : []);
    return {
      name: legend(target, each.metric), labels: each.metric, refId: target.refId,
      times: points.map((point) => Number(point[0])), values: points.map((point) => number(point[1])),
      native: points.length === 0 && Boolean(each.histograms ?? each.histogram),
    };
  });
}

// The series of all answers of a panel, under the names that the panel's transformations give them.
export function panelSeries(panel, answers) {
  const renames = (panel.transformations ?? []).filter(({ id, disabled }) => id === "renameByRegex" && !disabled).map(({ options }) => [expression(options?.regex ?? ""), options?.renamePattern ?? ""]);
  return answers.flatMap(({ target, result }) => seriesOf(target, result)).map((series) => ({ ...series, name: renames.reduce((name, [regex, pattern]) => (regex ? name.replace(regex, pattern) : name), series.name) }));
}

function expression(text) {
  try {
    const [, pattern, flags] = /^\/([\s\S]*)\/([a-z]*)$/.exec(text) ?? [null, text, ""];
    return pattern ? new RegExp(pattern, flags) : null;
  } catch {
    return null;
  }
}

// Instant answers of a table's targets, a frame for each: columns by name, rows as objects.
export function tablesOf(answers) {
  const several = answers.length > 1;
  return answers.map(({ target, result }, index) => {
    const name = several ? `Value #${target.refId ?? LETTERS[index]}` : "Value";
    const labels = [...new Set(result.flatMap((each) => Object.keys(each.metric)))].sort();
    const rows = result.flatMap((each) => points(each).map(([seconds, value]) => ({ Time: Number(seconds) * 1e3, ...each.metric, [name]: number(value) })));
    return { refId: target.refId, columns: ["Time", ...labels, name], rows };
  });
}

const points = (each) => each.values ?? (each.value ? [each.value] : []);

const TRANSFORMATIONS = {
  merge: (tables) => (tables.length ? [merge(tables)] : []),
  renameByRegex: (tables) => tables,
  seriesToRows: (tables) => tables,
  labelsToFields: (tables) => tables,
  joinByField: (tables, options) => [joined(tables, options.byField ?? "Time", options.mode ?? "outer")],
  organize: (tables, options) => tables.map((each) => organize(each, options)),
  sortBy: (tables, options) => tables.map((each) => sorted(each, options.sort?.[0])),
  limit: (tables, options) => tables.map((each) => ({ ...each, rows: each.rows.slice(0, Number(options.limitField ?? 10)) })),
  filterFieldsByName: (tables, options) => tables.map((each) => filtered(each, options.include?.names)),
};

// The table after all transformations, and the names of those that are not known here.
export function transformed(tables, transformations = []) {
  const unknown = [];
  let current = tables;
  for (const { id, options = {}, disabled } of transformations) {
    if (disabled) continue;
    if (TRANSFORMATIONS[id]) current = TRANSFORMATIONS[id](current, options);
    else unknown.push(id);
  }
  return { table: current.length > 1 ? merge(current) : current[0] ?? { columns: [], rows: [] }, unknown };
}

// Rows of all tables that agree in every column that all tables have, and contradict each other in none, become one.
function merge(tables) {
  const filled = tables.filter((each) => each.rows.length);
  const columns = [...new Set([...filled, ...tables].flatMap((each) => each.columns))]; // an empty query keeps its column
  const shared = columns.filter((name) => name !== "Time" && filled.every((each) => each.columns.includes(name)));
  const byKey = new Map();
  const rows = [];
  for (const row of filled.flatMap((each) => each.rows)) {
    const key = JSON.stringify(shared.map((name) => row[name] ?? null));
    const known = (byKey.get(key) ?? []).find((other) => columns.every((name) => name === "Time" || row[name] === undefined || other[name] === undefined || row[name] === other[name]));
    if (known) Object.assign(known, row);
    else {
      const made = { ...row };
      rows.push(made);
      byKey.set(key, [...(byKey.get(key) ?? []), made]);
    }
  }
  return { columns, rows };
}

function joined(tables, field, mode) {
  const columns = [...new Set(tables.flatMap((each) => each.columns))];
  const rows = new Map();
  tables.forEach((each, index) => {
    for (const row of each.rows) {
      const key = String(row[field]);
      if (mode === "inner" && index > 0 && !rows.has(key)) continue;
      rows.set(key, { ...row, ...rows.get(key) });
    }
  });
  return { columns, rows: [...rows.values()] };
}

function organize(table, { excludeByName = {}, includeByName = {}, indexByName = {}, renameByName = {} }) {
  const included = Object.keys(includeByName).filter((name) => includeByName[name]);
  const kept = table.columns.filter((name) => !excludeByName[name] && (!included.length || included.includes(name)));
  kept.sort((left, right) => (indexByName[left] ?? 1e6) - (indexByName[right] ?? 1e6));
  const renamed = (name) => renameByName[name] || name;
  const rows = table.rows.map((row) => ({ ...Object.fromEntries(kept.map((name) => [renamed(name), row[name]])), [SOURCE]: row }));
  return { columns: kept.map(renamed), rows };
}

// The row before columns were renamed or left out: links may name any label.
export const SOURCE = Symbol("source");

function filtered(table, names) {
  return names ? { ...table, columns: table.columns.filter((name) => names.includes(name)) } : table;
}

// Rows by a column; those of one value by their names, as Prometheus answers in any order.
export function sorted(table, by) {
  if (!by?.field) return table;
  const sign = by.desc ? -1 : 1;
  const ordered = (left, right) => left.localeCompare(right, "en", { numeric: true });
  const names = (row) => table.columns.map((name) => row[name]).filter((value) => typeof value === "string").join(" ");
  const place = (value) => (value === undefined || value === null || (typeof value === "number" && Number.isNaN(value)) ? 1 : 0);
  const compared = (a, b) => {
    if (place(a) || place(b)) return place(a) - place(b);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : ordered(String(a), String(b)));
  };
  const rows = [...table.rows].sort((left, right) => compared(left[by.field], right[by.field]) || ordered(names(left), names(right)));
  return { ...table, rows };
}

export function reduced(series, calculation = "lastNotNull") {
  const values = series.values.filter((value) => !Number.isNaN(value));
  if (!values.length) return undefined;
  if (calculation === "max") return Math.max(...values);
  if (calculation === "min") return Math.min(...values);
  if (calculation === "mean") return values.reduce((sum, value) => sum + value, 0) / values.length;
  if (calculation === "sum") return values.reduce((sum, value) => sum + value, 0);
  if (calculation === "first" || calculation === "firstNotNull") return values[0];
  if (calculation === "range") return Math.max(...values) - Math.min(...values);
  if (calculation === "count") return values.length;
  return values[values.length - 1];
}
