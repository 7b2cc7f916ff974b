// Units, value mappings, thresholds and colours, as Grafana's field options name them.

const SI = [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12], ["P", 1e15]];
const SMALL = [["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]];
const BINARY = [["", 1], ["Ki", 2 ** 10], ["Mi", 2 ** 20], ["Gi", 2 ** 30], ["Ti", 2 ** 40], ["Pi", 2 ** 50]];
const TIMES = [["week", 604800], ["day", 86400], ["hour", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const LONG = 60; // units from a minute on have a plural, as in Grafana, which also writes "1 mins" for 65 s without decimals
const COUNTS = [["", 1], ["K", 1e3], ["Mil", 1e6], ["Bil", 1e9], ["Tri", 1e12]];

// Grafana's rule (getDecimalsForValue of @grafana/data): three significant digits, and none behind a whole number.
function digits(value, decimals) {
  if (decimals !== undefined && decimals !== null) return value.toFixed(Math.min(decimals, 12));
  if (value === 0 || Number.isInteger(value)) return String(value);
  return value.toFixed(Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))))));
}

function scaled(value, steps, unit, decimals) {
  const size = Math.abs(value);
  let chosen = steps[0];
  for (const step of steps) if (size >= step[1]) chosen = step;
  const suffix = `${chosen[0]}${unit}`;
  return `${digits(value / chosen[1], decimals)}${suffix ? ` ${suffix}` : ""}`;
}

function metric(value, unit, decimals) {
  const size = Math.abs(value);
  if (size >= 1 || size === 0) return scaled(value, SI, unit, decimals);
  const [prefix, factor] = SMALL.find(([, each]) => size >= each) ?? SMALL[3];
  return `${digits(value / factor, decimals)} ${prefix}${unit}`.trim();
}

function time(seconds, decimals) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  const [name, factor] = TIMES.find(([, each]) => size >= each) ?? TIMES[6];
  const shown = digits(seconds / factor, decimals);
  return `${shown} ${name}${factor >= LONG && Math.abs(Number(shown)) > 1 ? "s" : ""}`;
}

function fromNow(milliseconds) {
  const seconds = (Date.now() - milliseconds) / 1e3;
  const size = Math.max(Math.abs(seconds), 1);
  const [, factor] = TIMES.find(([, each]) => size >= each);
  const whole = time(Math.round(size / factor) * factor, 0);
  return seconds < 0 ? `in ${whole}` : `${whole} ago`;
}

const short = (value, decimals) => (Math.abs(value) < 1 ? digits(value, decimals) : scaled(value, COUNTS, "", decimals));
const bytes = (value, decimals, unit = "B") => scaled(value, BINARY, unit, decimals);

const UNITS = {
  none: digits, short, locale: (value, decimals) => Number(digits(value, decimals)).toLocaleString("en"),
  percent: (value, decimals) => `${digits(value, decimals)} %`,
  percentunit: (value, decimals) => `${digits(value * 100, decimals)} %`,
  s: time, dtdurations: time, ms: (value, d) => time(value / 1e3, d), µs: (value, d) => time(value / 1e6, d),
  ns: (value, d) => time(value / 1e9, d),
  bytes, decbytes: (value, d) => scaled(value, SI, "B", d), mbytes: (value, d) => bytes(value * 2 ** 20, d),
  kbytes: (value, d) => bytes(value * 2 ** 10, d), gbytes: (value, d) => bytes(value * 2 ** 30, d),
  Bps: (value, d) => scaled(value, SI, "B/s", d), binBps: (value, d) => bytes(value, d, "B/s"),
  bps: (value, d) => scaled(value, SI, "b/s", d),
  celsius: (value, d) => `${digits(value, d)} °C`, watt: (value, d) => metric(value, "W", d), joule: (value, d) => metric(value, "J", d),
  hertz: (value, d) => metric(value, "Hz", d), rotmhz: (value, d) => metric(value * 1e6, "Hz", d),
  cps: (value, d) => `${short(value, d)}/s`, ops: (value, d) => `${short(value, d)}/s`, reqps: (value, d) => `${short(value, d)}/s`,
  eps: (value, d) => `${short(value, d)} events/s`, mps: (value, d) => `${short(value, d)} messages/s`, iops: (value, d) => `${short(value, d)}/s`,
  bool: (value) => (value ? "true" : "false"),
  dateTimeAsIso: (value) => new Date(value).toLocaleString("sv"), dateTimeFromNow: fromNow,
  flops: (value, d) => metric(value, "FLOP/s", d), string: (value) => String(value),
};

// A number with its unit. An unknown unit is written behind it, so no figure loses its meaning.
export function withUnit(value, unit = "none", decimals = undefined) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "+∞" : "-∞";
  const known = UNITS[unit];
  if (known) return known(value, decimals);
  if (unit.startsWith("suffix:")) return `${digits(value, decimals)} ${unit.slice(7)}`;
  if (unit.startsWith("prefix:")) return `${unit.slice(7)}${digits(value, decimals)}`;
  if (unit.startsWith("si:")) return metric(value, unit.slice(3), decimals);
  if (unit.startsWith("count:")) return `${short(value, decimals)} ${unit.slice(6)}`;
  if (unit.startsWith("time:")) return new Date(value).toLocaleString("sv");
  return `${digits(value, decimals)} ${unit}`;
}

function mapped(config, value) {
  for (const mapping of config.mappings ?? []) {
    const options = mapping.options;
    if (mapping.type === "value" && options[String(value)] !== undefined) return options[String(value)];
    if (mapping.type === "range" && typeof value === "number" && value >= (options.from ?? -Infinity) && value <= (options.to ?? Infinity)) return options.result;
    if (mapping.type === "special" && special(options.match, value)) return options.result;
    if (mapping.type === "regex" && typeof value === "string") {
      try {
        const pattern = new RegExp(options.pattern.replace(/^\/|\/$/g, ""));
        if (pattern.test(value)) return { ...options.result, text: options.result.text === undefined ? undefined : value.replace(pattern, options.result.text) };
      } catch {
        continue;
      }
    }
  }
  return undefined;
}

function special(match, value) {
  const missing = value === null || value === undefined;
  const notANumber = typeof value === "number" && Number.isNaN(value);
  return (match === "null" && missing) || (match === "nan" && notANumber) || (match === "null+nan" && (missing || notANumber))
    || (match === "empty" && value === "") || (match === "true" && value === true) || (match === "false" && value === false);
}

// Text and colour of a value under a field's options.
export function displayed(config, value) {
  const found = mapped(config, value);
  const color = found?.color ? namedColor(found.color) : valueColor(config, value);
  if (found?.text !== undefined) return { text: found.text, color };
  if (value === null || value === undefined || value === "" || (typeof value === "number" && Number.isNaN(value))) return { text: config.noValue ?? "–", color };
  if (typeof value !== "number") return { text: String(value), color };
  return { text: withUnit(value, config.unit, config.decimals), color };
}

export function thresholdColor(config, value) {
  const steps = config.thresholds?.steps ?? [];
  let level = value;
  if (config.thresholds?.mode === "percentage") {
    const low = config.min ?? 0;
    level = ((value - low) / ((config.max ?? 100) - low)) * 100;
  }
  let color = steps[0]?.color;
  for (const step of steps) if (step.value === null || step.value === undefined || level >= step.value) color = step.color;
  return color ? namedColor(color) : undefined;
}

function valueColor(config, value) {
  if (config.color?.mode === "fixed") return namedColor(config.color.fixedColor ?? "text");
  return typeof value === "number" ? thresholdColor(config, value) : undefined;
}

export const PALETTE = ["#3f8f4f", "#b8860b", "#2f7ec0", "#d9622b", "#c5303d", "#3b5bb5", "#a0489b", "#6c5aa8", "#2a9d8f", "#8d6e3f", "#7a9a01", "#e377c2"];
const COLORS = {
  green: "var(--green)", red: "var(--red)", orange: "var(--orange)", yellow: "var(--yellow)", blue: "var(--blue)",
  purple: "var(--purple)", text: "var(--text)", gray: "var(--quiet)", grey: "var(--quiet)", transparent: "transparent",
  white: "#ffffff", black: "#000000",
};

// Grafana's colour names in the page's own palette; "dark-red", "semi-dark-red" and the like are their base colour.
export function namedColor(name) {
  const base = String(name).replace(/^(super-light|semi-dark|light|dark)-/, "");
  if (COLORS[base]) return COLORS[base];
  return /^(#[0-9a-fA-F]{3,8}|rgba?\([0-9., %]+\))$/.test(name) ? name : "var(--text)";
}
