// graphile-worker on PostgreSQL with a local queue and batched completion. `addJobs` is its bulk call.
import pg from "pg";
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { handle, main, versionOf } from "./protocol.mjs";

const logger = new Logger(() => () => {});
let utils, pool;

main({
  version: versionOf("graphile-worker"),
  async open({ database_url }) {
    pool = new pg.Pool({ connectionString: database_url, max: 20 });
    utils = await makeWorkerUtils({ pgPool: pool, logger });
    await utils.migrate();
  },
  submit: (sent) => utils.addJob("noop", { sent }),
  submitMany: (count) => utils.addJobs(Array.from({ length: count }, () => ({ identifier: "noop", payload: { sent: 0 } }))),
  async left() {
    const found = await pool.query("SELECT count(*) AS count FROM graphile_worker._private_jobs");
    return Number(found.rows[0].count);
  },
  async work({ database_url, concurrency, batch }) {
    const worker = { connectionString: database_url, concurrentJobs: concurrency, maxPoolSize: concurrency + 1 };
    const batching = { localQueue: { size: batch }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    await run({ preset: { worker: { ...worker, ...batching, logger } }, taskList: { noop: ({ sent }) => handle(sent) } });
  },
});
