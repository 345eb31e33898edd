// pg-boss on PostgreSQL, batched, with LISTEN/NOTIFY. `insert` is its bulk call; finished tasks stay until maintenance.
import { PgBoss } from "pg-boss";
import { handle, main, versionOf } from "./protocol.mjs";

let boss;

async function start(database_url, extra = {}) {
  boss = new PgBoss({ connectionString: database_url, useListenNotify: true, ...extra });
  boss.on("error", () => {});
  await boss.start();
}

main({
  version: versionOf("pg-boss"),
  async open({ database_url }) {
    await start(database_url);
    await boss.createQueue("peers", { notify: true });
  },
  submit: (sent) => boss.send("peers", { sent }),
  submitMany: (count) => boss.insert("peers", Array.from({ length: count }, () => ({ data: { sent: 0 } }))),
  async left() {
    const found = await boss.getDb().executeSql("SELECT count(*) AS count FROM pgboss.job WHERE name = 'peers' AND state < 'completed'");
    return Number(found.rows[0].count);
  },
  async work({ database_url, concurrency, batch }) {
    await start(database_url, { supervise: false, schedule: false });
    const options = { batchSize: batch, localConcurrency: concurrency, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
    await boss.work("peers", options, async (tasks) => tasks.forEach((task) => handle(task.data.sent)));
  },
});
