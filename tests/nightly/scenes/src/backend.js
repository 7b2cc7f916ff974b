// A double of Grafana's back end: it interpolates the variables of time, asks Prometheus, and returns data frames as
// Grafana's Prometheus plugin writes them (grafana/grafana, pkg/promlib: models/query.go, converter/prom.go).

import { rangeUtil } from "@grafana/data";
import { from } from "rxjs";

const MOST_POINTS = 11_000;
export const asked = [];

export class Backend {
  constructor(prometheus, interval) {
    this.prometheus = prometheus;
    this.scrape = rangeUtil.intervalToMs(interval);
  }

  fetch(request) {
    return from(this.answer(request));
  }

  async get(url, params) {
    return (await this.answer({ url, method: "GET", params })).data;
  }

  async answer({ url, params, data }) {
    if (url.startsWith("/api/ds/query")) return this.queries(data);
    const resource = /\/resources\/(.*)$/.exec(url);
    if (!resource) throw new Error(`the double of the back end has no ${url}`);
    return { data: await this.ask(resource[1], params ?? data ?? {}), status: 200, ok: true };
  }

  async ask(path, parameters) {
    const form = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) for (const one of [value].flat()) form.append(name, one);
    const answer = await fetch(`${this.prometheus}/${path.replace(/^\//, "")}?${form}`);
    return answer.json();
  }

  async queries({ queries, from: begin, to: end }) {
    const results = {};
    for (const query of queries) results[query.refId] = await this.frames(query, Number(begin), Number(end));
    return { data: { results }, status: 200, ok: true };
  }

  async frames(query, begin, end) {
    const step = stepOf(query, begin, end, this.scrape);
    const expr = interpolated(query.expr, step, begin, end, this.scrape);
    const instant = Boolean(query.instant);
    const times = { start: Math.floor(begin / step) * step / 1e3, end: Math.floor(end / step) * step / 1e3, step: step / 1e3 };
    const answer = await this.ask(instant ? "api/v1/query" : "api/v1/query_range", { query: expr, ...(instant ? { time: end / 1e3 } : times) });
    asked.push({ expr, instant, error: answer.error });
    if (answer.status !== "success") return { error: `${answer.errorType}: ${answer.error}`, status: 400 };
    const { resultType, result } = answer.data;
    if (resultType === "scalar") return { status: 200, frames: [frame(query, {}, [result], resultType, expr, step)] };
    if (!result.length) return { status: 200, frames: [{ schema: { refId: query.refId, fields: [] }, data: { values: [] } }] }; // as promlib/querydata/response.go
    return { status: 200, frames: result.map(({ metric, value, values }) => frame(query, metric, values ?? [value], resultType, expr, step)) };
  }
}

function stepOf({ interval, maxDataPoints }, begin, end, scrape) {
  const least = Math.max(scrape, interval && !interval.startsWith("$") ? rangeUtil.intervalToMs(interval) : 0);
  const step = rangeUtil.roundInterval((end - begin) / (maxDataPoints || 1500));
  return Math.max(least, step, rangeUtil.roundInterval((end - begin) / MOST_POINTS));
}

function interpolated(expr, step, begin, end, scrape) {
  const rate = Math.max(step + scrape, 4 * scrape);
  const range = Math.round((end - begin) / 1e3);
  const values = {
    __interval_ms: step, __interval: seconds(step), __rate_interval_ms: rate, __rate_interval: seconds(rate),
    __range_ms: end - begin, __range_s: range, __range: `${range}s`,
  };
  return expr.replace(/\$(?:\{(__\w+)(?::\w+)?\}|(__\w+))/g, (found, braced, plain) => values[braced ?? plain] ?? found);
}

function seconds(milliseconds) {
  return milliseconds % 1e3 ? `${milliseconds}ms` : `${milliseconds / 1e3}s`;
}

function legend({ legendFormat, expr }, { __name__: name = "", ...labels }) {
  if (legendFormat && legendFormat !== "__auto") return legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => (label === "__name__" ? name : labels[label] ?? ""));
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return name || pairs.length ? `${name}${pairs.length ? `{${pairs.join(", ")}}` : ""}` : expr;
}

function frame(query, metric, points, resultType, expr, step) {
  const numbers = points.map(([, text]) => Number(text.replace("Inf", "Infinity")));
  const at = (same) => numbers.flatMap((value, index) => (same(value) ? [index] : []));
  const name = legend(query, metric);
  const meta = { type: resultType === "matrix" ? "timeseries-multi" : "numeric-multi", typeVersion: [0, 1], custom: { resultType }, executedQueryString: `Expr: ${expr}\nStep: ${seconds(step)}` };
  const { __name__: metricName = "Value", ...labels } = metric;
  return {
    schema: {
      refId: query.refId, name, meta,
      fields: [
        { name: "Time", type: "time", typeInfo: { frame: "time.Time" }, config: resultType === "matrix" ? { interval: step } : {} },
        { name: metricName, type: "number", typeInfo: { frame: "float64" }, labels: { ...labels, ...(metric.__name__ ? { __name__: metricName } : {}) }, config: { displayNameFromDS: name } },
      ],
    },
    data: {
      values: [points.map(([time]) => Math.round(time * 1e3)), numbers.map((value) => (Number.isFinite(value) ? value : null))],
      entities: [null, { NaN: at(Number.isNaN), Inf: at((value) => value === Infinity), NegInf: at((value) => value === -Infinity) }],
    },
  };
}
