// Requests to the bridge. Queries that are asked in one turn of the event loop leave in one request.

const MOST = 64; // queries of a request
const LARGEST = 240_000; // characters of a request, which are bytes: queries are percent-encoded
const HEAD = 9; // bytes: number of the query, status, 1 for gzip, length of the body
let waiting = [];

export class Unanswered extends Error {}

async function fetched(address, options) {
  try {
    // The origin has no user and password; a page that was opened with them in its address must not send them again.
    return await fetch(new URL(address, location.origin), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unanswered("the bridge does not answer");
  }
}

async function body(answer) {
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Unanswered(found.error ?? `the bridge answered ${answer.status}`);
  return found;
}

export const json = async (address) => body(await fetched(address, { headers: { accept: "application/json" } }));

// One query of a panel; returns Prometheus' `data.result`. The bridge knows equal queries as such by their text.
export function asked(kind, parameters, signal) {
  return new Promise((resolve, reject) => {
    if (!waiting.length) queueMicrotask(send);
    waiting.push({ query: `${kind}?${new URLSearchParams(parameters)}`, signal, resolve, reject });
  });
}

function send() {
  const all = waiting;
  waiting = [];
  for (const signal of new Set(all.map((one) => one.signal))) {
    const own = all.filter((one) => one.signal === signal);
    for (const some of requests(own)) together(some, signal);
  }
}

// A fleet's list of nodes stands several times in a query, so few queries can fill a request.
function requests(queries) {
  const made = [];
  let size = Infinity;
  for (const one of queries) {
    const length = one.query.length + 3; // quotes and a comma
    if (size + length > LARGEST || made.at(-1).length === MOST) [size, made[made.length]] = [2, []];
    made.at(-1).push(one);
    size += length;
  }
  return made;
}

// The bridge answers those that are ready after a moment; the others are asked for again, and it goes on with them.
async function together(queries, signal) {
  try {
    const options = { method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(queries.map(({ query }) => query)) };
    const answer = await fetched("/pages/api/queries", options);
    if (!answer.ok) await body(answer);
    const bytes = await answer.arrayBuffer();
    const left = new Set(queries);
    for (let [begin, end] = [0, 0]; begin < bytes.byteLength; begin = end) {
      const head = new DataView(bytes, begin);
      end = begin + HEAD + head.getUint32(5);
      const query = queries[head.getUint16(0)];
      left.delete(query);
      settle(query, head.getUint16(2), head.getUint8(4), bytes.slice(begin + HEAD, end));
    }
    if (left.size === queries.length) throw new Unanswered("the bridge answered nothing");
    if (left.size) await together([...left], signal);
  } catch (error) {
    const reason = error instanceof Unanswered || error.name === "AbortError" ? error : new Unanswered("the bridge does not answer");
    for (const { reject } of queries) reject(reason);
  }
}

async function settle({ resolve, reject }, status, packed, bytes) {
  try {
    const stream = packed ? new Response(bytes).body.pipeThrough(new DecompressionStream("gzip")) : bytes;
    const found = await body(new Response(stream, { status }));
    if (found.status !== "success") throw new Unanswered(found.error ?? "Prometheus refused the query");
    resolve(found.data?.result ?? []);
  } catch (error) {
    reject(error instanceof Unanswered ? error : new Unanswered("the bridge's answer cannot be read"));
  }
}
