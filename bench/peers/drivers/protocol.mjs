// The same as protocol.py, for Node: a client that takes orders on standard input, and a no-op handler.
import { appendFileSync, openSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const delays = process.env.PEERS_DELAYS ? openSync(process.env.PEERS_DELAYS, "a") : null;
const seconds = () => performance.now() / 1000;
const pause = (duration) => new Promise((resolve) => setTimeout(resolve, Math.max(duration * 1000, 0)));
const now = () => (performance.timeOrigin + performance.now()) / 1000;

export function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

export function handle(sent) {
  if (sent && delays !== null) appendFileSync(delays, `${(now() - sent) * 1000}\n`);
}

const orders = {
  async single(driver, { seconds: duration, at_once }) {
    const began = seconds();
    let count = 0;
    const goOn = async () => {
      while (seconds() - began < duration) {
        await driver.submit(0);
        count += 1;
      }
    };
    await Promise.all(Array.from({ length: at_once }, goOn));
    return { count, seconds: seconds() - began };
  },
  async bulk(driver, { seconds: duration, batch }) {
    const began = seconds();
    let count = 0;
    while (seconds() - began < duration) {
      await driver.submitMany(batch);
      count += batch;
    }
    return { count, seconds: seconds() - began };
  },
  async paced(driver, { count, per_second }) {
    const began = seconds();
    for (let number = 0; number < count; number += 1) {
      await pause(began + number / per_second - seconds());
      await driver.submit(now());
    }
    return { count, seconds: seconds() - began };
  },
  async left(driver) {
    return { left: await driver.left() };
  },
};

const write = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

// A driver is { version, open(settings), submit(sent), submitMany(count), left(), work(settings) }.
export async function main(driver) {
  const [role, text] = process.argv.slice(2);
  const settings = JSON.parse(text);
  if (role === "worker") return driver.work(settings);
  await driver.open(settings);
  write({ version: driver.version, has_async: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...order } = JSON.parse(line);
    try {
      write(await orders[name](driver, order));
    } catch (error) {
      write({ error: String(error.stack) });
      break;
    }
  }
  process.exit(0);
}
