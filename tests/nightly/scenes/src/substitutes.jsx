// Substitutes for the panels whose component is in none of Grafana's packages. Data, texts and colours are Grafana's.

import { FieldType, formattedValueToString, getFieldDisplayName, getFieldConfigWithMinMax } from "@grafana/data";
import { config } from "@grafana/runtime";

const NOTE = { position: "absolute", right: 4, top: -18, fontSize: 10, opacity: 0.7 };

function timeOf(frame) {
  return frame.fields.find((field) => field.type === FieldType.time);
}

export function StateTimeline({ data, width, height, timeRange, fieldConfig }) {
  const rows = data.series.flatMap((frame) => frame.fields.filter((field) => field.type !== FieldType.time).map((field) => ({ frame, field })));
  if (!rows.some(({ frame }) => frame.length)) return <div className="no-data">{fieldConfig.defaults.noValue || "No data"}</div>;
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const tall = Math.max(12, Math.min(28, height / rows.length));
  const label = Math.min(220, width * 0.3);
  const x = (time) => ((time - from) / (to - from)) * (width - label);
  return (
    <div style={{ position: "relative", width, height, overflow: "hidden" }}>
      <span style={NOTE}>substitute</span>
      {rows.map(({ frame, field }, row) => {
        const times = timeOf(frame).values;
        const spans = [];
        field.values.forEach((value, index) => {
          const last = spans[spans.length - 1];
          const until = times[index + 1] ?? times[index];
          if (last && last.value === value && last.until === times[index]) last.until = until;
          else spans.push({ value, begin: times[index], until });
        });
        return (
          <div key={row} style={{ display: "flex", height: tall, fontSize: 11, lineHeight: `${tall}px` }}>
            <div className="row-name" style={{ width: label, overflow: "hidden", whiteSpace: "nowrap" }}>{getFieldDisplayName(field, frame, data.series)}</div>
            <div style={{ position: "relative", flex: 1 }}>
              {spans.filter(({ value }) => value !== null && value !== undefined).map(({ value, begin, until }, index) => {
                const shown = field.display(value);
                return (
                  <div key={index} title={formattedValueToString(shown)} className="state"
                    style={{ position: "absolute", left: x(begin), width: Math.max(1, x(until) - x(begin)), height: tall - 3, overflow: "hidden", background: shown.color, whiteSpace: "nowrap" }}>
                    {formattedValueToString(shown)}
                  </div>
                );
              })}
            </div>
          </div>
        );
      })}
    </div>
  );
}

export function Heatmap({ data, width, height, fieldConfig }) {
  const frame = data.series[0];
  const buckets = frame?.fields.filter((field) => field.type === FieldType.number) ?? [];
  if (!frame?.length || !buckets.length) return <div className="no-data">{fieldConfig.defaults.noValue || "No data"}</div>;
  const dense = frame.fields.find((field) => field.name === "yMax" || field.name === "y");
  if (dense) return <div className="no-data">a heat map of {frame.length} cells: not drawn by the substitute</div>;
  const most = Math.max(...buckets.flatMap((field) => field.values.filter(Number.isFinite)));
  const [wide, tall] = [(width - 110) / frame.length, (height - 8) / buckets.length];
  return (
    <div style={{ position: "relative", width, height }}>
      <span style={NOTE}>substitute</span>
      <svg width={width} height={height} style={{ font: "10px sans-serif", fill: config.theme2.colors.text.primary }}>
        {buckets.map((field, row) => (
          <g key={row} transform={`translate(0 ${height - 8 - (row + 1) * tall})`}>
            {(row % Math.ceil(12 / tall) === 0) && <text x={104} y={tall} textAnchor="end">{getFieldDisplayName(field, frame, data.series)}</text>}
            {field.values.map((value, index) => (value > 0 ? <rect key={index} x={110 + index * wide} width={Math.max(1, wide)} height={tall} fill="#5794f2" opacity={0.1 + (0.9 * value) / most} /> : null))}
          </g>
        ))}
      </svg>
    </div>
  );
}
