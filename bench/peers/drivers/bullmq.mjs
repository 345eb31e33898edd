// BullMQ. `addBulk` is its bulk call; finished tasks are removed.
import { Queue, Worker } from "bullmq";
import { handle, main, versionOf } from "./protocol.mjs";

const options = { removeOnComplete: true, removeOnFail: true };
const connection = (url) => ({ host: new URL(url).hostname, port: Number(new URL(url).port), maxRetriesPerRequest: null });
let queue;

main({
  version: versionOf("bullmq"),
  async open({ redis_url }) {
    queue = new Queue("peers", { connection: connection(redis_url) });
    await queue.waitUntilReady();
  },
  submit: (sent) => queue.add("noop", { sent }, options),
  submitMany: (count) => queue.addBulk(Array.from({ length: count }, () => ({ name: "noop", data: { sent: 0 }, opts: options }))),
  async left() {
    const counts = await queue.getJobCounts("waiting", "active", "delayed", "prioritized");
    return Object.values(counts).reduce((sum, count) => sum + count, 0);
  },
  work({ redis_url, concurrency }) {
    new Worker("peers", async (task) => handle(task.data.sent), { connection: connection(redis_url), concurrency });
  },
});
