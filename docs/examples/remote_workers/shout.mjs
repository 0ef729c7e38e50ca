// Runs the step "shout" with Node 20 or newer, without packages. Checked as TypeScript by the types in comments.
// HOLDFAST_SERVER=https://host HOLDFAST_KEY=... node shout.mjs
/** @typedef {{token: string, step?: string, stage?: string, attempt: number, idempotency_key: string, input: any}} Task */
const url = `${process.env.HOLDFAST_SERVER}/v1/namespaces/default`, key = process.env.HOLDFAST_KEY, slots = 8;
/** @typedef {Record<string, (task: Task, stop: AbortSignal) => Promise<unknown>>} Bodies */
const steps = /** @type {Bodies} */ ({ shout: async (task) => task.input.text.toUpperCase() });
const stages = /** @type {Bodies} */ ({});
const sleep = (/** @type {number} */ ms) => new Promise((done) => setTimeout(done, ms));

/** Send a request until it is answered: with the same key, so that it takes effect once.
 * @returns {Promise<any>} */
async function call(/** @type {string} */ path, body = {}, headers = {}) {
  for (let pause = 100; ; pause = Math.min(pause * 2, 5_000)) {
    try {
      const reply = await fetch(url + path, {
        method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(70_000),
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      });
      const answer = await reply.json();
      if (reply.status < 500 && reply.status !== 429) return answer;
    } catch {} // no answer
    await sleep(pause);
  }
}

const held = /** @type {Map<string, AbortController>} */ (new Map());
async function run(/** @type {Task} */ task) {
  const stop = new AbortController();
  held.set(task.token, stop);
  try {
    const body = task.stage ? stages[task.stage] : steps[task.step ?? ""];
    const output = await body(task, stop.signal);
    const reply = await call(`/tasks/${task.token}/complete`, { output: output ?? null });
    if (reply.code && reply.code !== "lease_lost") throw { code: reply.code, message: reply.detail }; // of another type
  } catch (/** @type {any} */ error) {
    const what = { code: error.code ?? "error", type: error.name ?? "", message: String(error.message ?? error) };
    await call(`/tasks/${task.token}/fail`, { error: what });
  }
  held.delete(task.token);
}

for (;;) { // once for each session
  const work = { steps: Object.keys(steps), stages: Object.keys(stages), queues: ["tools"], concurrency: slots };
  const { worker: id, heartbeat_every_seconds: every } = await call("/workers", { name: `node-${process.pid}`, ...work });
  if (!id) throw new Error("the server refuses this worker");
  const beats = setInterval(async () => {
    const { stop } = await call(`/workers/${id}/heartbeat`, { holds: [...held.keys()].map((token) => ({ token })) });
    for (const token of stop ?? []) held.get(token)?.abort();
  }, every * 1000);
  for (let n = 1; ; n++) {
    while (held.size >= slots) await sleep(10);
    const headers = { prefer: "wait=50", "idempotency-key": String(n) };
    const { tasks, code } = await call(`/workers/${id}/claim`, { limit: slots - held.size }, headers);
    if (code) break; // session_lost
    for (const task of tasks ?? []) run(task);
  }
  clearInterval(beats);
  for (const stop of held.values()) stop.abort();
}
