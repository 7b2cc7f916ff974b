// The options of one field: the panel's defaults and the overrides that match it.

export function fieldConfig(panel, { name, refId = undefined, labels = {} }) {
  const config = { ...panel.fieldConfig?.defaults, custom: { ...panel.fieldConfig?.defaults?.custom }, labels };
  for (const { matcher, properties = [] } of panel.fieldConfig?.overrides ?? []) {
    if (!matches(matcher, name, refId)) continue;
    for (const { id, value } of properties) {
      if (id.startsWith("custom.")) config.custom[id.slice(7)] = value;
      else config[id] = value;
    }
  }
  return config;
}

function matches({ id, options }, name, refId) {
  if (id === "byName") return name === options;
  if (id === "byFrameRefID") return refId === options;
  if (id === "byNames") return (options?.names ?? []).includes(name);
  if (id !== "byRegexp") return false;
  try {
    const [, pattern, flags] = /^\/([\s\S]*)\/([a-z]*)$/.exec(options) ?? [null, options, ""];
    return new RegExp(pattern, flags).test(name);
  } catch {
    return false;
  }
}

// Answers `__field.labels.x`, `__data.fields.x`, `__value.raw` and the like in a data link.
export function linkValues({ name, value, text, labels = {}, row = undefined }) {
  return (variable) => {
    const found = /^__data\.fields(?:\.([\w]+)|\["([^"]*)"\])/.exec(variable);
    if (found) {
      const wanted = found[1] ?? found[2];
      return present(row?.[wanted] ?? labels[wanted]);
    }
    if (variable.startsWith("__field.labels.")) return present(labels[variable.slice(15)] ?? row?.[variable.slice(15)]);
    if (variable === "__series.name" || variable === "__field.name" || variable === "__field.displayName") return name;
    if (variable === "__value.raw" || variable === "__value.numeric") return present(value);
    if (variable === "__value.text") return text;
    return undefined;
  };
}

const present = (value) => (value === undefined || value === null ? undefined : String(value));
