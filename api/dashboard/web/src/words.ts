// Numbers, times and states as people say them.
import { keptStore } from './store';

const COUNT = new Intl.NumberFormat('en');

export const count = (value: number): string => COUNT.format(value);

export const some = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`;

/** In the two largest units that matter. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 0.0005) return '0 s';
  if (seconds < 1) return `${Math.round(seconds * 1_000)} ms`;
  if (seconds < 10) return `${(Math.round(seconds * 10) / 10).toString()} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const units: [number, string][] = [
    [31_536_000, 'year'],
    [86_400, 'day'],
    [3_600, 'h'],
    [60, 'min'],
    [1, 's'],
  ];
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [size, unit] of units) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole > 0) parts.push(size < 86_400 ? `${whole} ${unit}` : some(whole, unit));
    if (parts.length === 2 || (parts.length === 1 && whole === 0)) break;
  }
  return parts.join(' ');
}

export function ago(at: string | null | undefined, now: number): string {
  if (!at) return '–';
  const seconds = (now - Date.parse(at)) / 1_000;
  if (Math.abs(seconds) < 1) return 'just now';
  return seconds >= 0 ? `${duration(Math.floor(seconds))} ago` : `in ${duration(Math.floor(-seconds))}`;
}

/** Whether absolute times are shown in UTC or in this browser's zone. */
export const zone = keptStore('zone', 'local');

export function instant(at: string | null | undefined, chosenZone = zone.value): string {
  if (!at) return '–';
  const date = new Date(at);
  if (chosenZone === 'utc') return date.toISOString().replace('T', ' ').replace('Z', ' UTC');
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}

export const percent = (share: number): string => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export const plain = (word: string): string => word.replaceAll('_', ' ');

/** What the service calls the rest, where there are very many types. */
export const OTHER_TYPES = 'other';

export const TERMINAL = ['completed', 'failed', 'cancelled', 'dead_letter'];
export const LIVE = ['queued', 'assigned', 'executing'];
export const REVIVABLE = ['failed', 'cancelled', 'dead_letter'];
