// A worker in Node, with nothing but fetch: checksums of tasks of type `checksum`, four at a time, until Ctrl-C.
//
//     node worker.mjs
//     tideq submit checksum '{"text": "the tide goes out"}' --wait
//
// TIDEQ_URL and TIDEQ_API_KEY set the service and the key.
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const api = `${process.env.TIDEQ_URL ?? "http://127.0.0.1:8080"}/internal/workers`;
const key = process.env.TIDEQ_API_KEY;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
const SLOTS = 4;
const leaving = new AbortController();

class Refused extends Error {
  constructor(problem) {
    super(problem.detail);
    this.code = problem.type?.split("/").pop(); // stable, unlike the text
  }
}

async function call(method, path, body, signal) {
  const answer = await fetch(api + path, { method, headers, body: body && JSON.stringify(body), signal });
  const document = await answer.json();
  if (!answer.ok) throw new Refused(document);
  return document;
}

function handle({ text }) {
  if (typeof text !== "string") throw new TypeError("text must be a string");
  return { sha256: createHash("sha256").update(text).digest("hex") };
}

async function run(worker, task) {
  const held = { task_id: task.task_id, lease: task.lease };
  await call("POST", `/${worker}/start`, held);
  let ended;
  try {
    ended = { status: "completed", result: handle(task.parameters) };
  } catch (error) {
    // A wrong argument fails at each attempt; other errors may pass.
    const retriable = !(error instanceof TypeError);
    ended = { status: "failed", error: { message: error.message, code: error.name, retriable } };
  }
  await call("POST", `/${worker}/result`, { ...held, ...ended });
  console.log(`${task.task_id}: ${ended.status}`);
}

// Polling counts as a heartbeat, so a worker that polls needs no other.
async function work(worker) {
  while (!leaving.signal.aborted) {
    try {
      const poll = { available_capacity: 1, wait_seconds: 20 };
      const { tasks } = await call("POST", `/${worker}/poll`, poll, leaving.signal);
      for (const task of tasks) await run(worker, task);
    } catch (error) {
      if (leaving.signal.aborted) return;
      if (error.code === "unknown-worker") throw error; // declared dead: restart this process
      console.error(`${error.message}; trying again`);
      await sleep(1000); // a refused result changes nothing: the task returns to the queue by itself
    }
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => leaving.abort());
const registration = { name: "node", task_types: ["checksum"], capacity: SLOTS };
const { worker_id: worker } = await call("POST", "/register", registration);
console.log(`registered as ${worker}`);
// Running tasks are completed; the state "draining" explains to the service why this worker polls no more.
leaving.signal.addEventListener("abort", () => call("POST", `/${worker}/heartbeat`, { status: "draining" }).catch(() => {}));
await Promise.all(Array.from({ length: SLOTS }, () => work(worker)));
await call("DELETE", `/${worker}`); // releases held tasks at once, without using up a retry
