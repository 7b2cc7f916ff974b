// Requests to the bridge, a few at a time, so that one page does not take every place of a small server.

const AT_ONCE = 4;
const waiting = [];
let running = 0;

export class Unanswered extends Error {}

async function inTurn(work) {
  if (running >= AT_ONCE) await new Promise((go) => waiting.push(go));
  running += 1;
  try {
    return await work();
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}

export async function json(address, signal = undefined) {
  let answer;
  try {
    // The origin has no user and password; a page that was opened with them in its address must not send them again.
    answer = await fetch(new URL(address, location.origin), { signal, credentials: "same-origin", headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unanswered("the bridge does not answer");
  }
  let body;
  try {
    body = await answer.json();
  } catch {
    body = {};
  }
  if (!answer.ok) throw new Unanswered(body.error ?? `the bridge answered ${answer.status}`);
  return body;
}

// One query of a panel; returns Prometheus' `data.result`.
export function prometheus(kind, parameters, signal) {
  return inTurn(async () => {
    const body = await json(`/pages/api/v1/${kind}?${new URLSearchParams(parameters)}`, signal);
    if (body.status !== "success") throw new Unanswered(body.error ?? "Prometheus refused the query");
    return body.data?.result ?? [];
  });
}

// One target of the pages without Prometheus, by its place in the model; the bridge evaluates it over its own ring.
export function local(place, signal) {
  return inTurn(async () => (await json(`/pages/api/local?${new URLSearchParams(place)}`, signal)).data.result);
}
