// What people type to find tasks: `status:failed type:resize tag.customer:42 error:"timed out"`.
import type { Query } from './api/client';

export type Term = { name: string; value: string };

const TERM = /(?:([a-z_]+(?:\.[^\s:]+)?):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/g;

export const QUALIFIERS: Record<string, string> = {
  status: 'queued, assigned, executing, completed, failed, cancelled, dead_letter; several with commas',
  type: 'the task type',
  priority: 'high, medium, low or a level of your own',
  'tag.NAME': 'a tag’s value',
  worker: 'whose the current or last attempt is',
  error: 'words that its errors hold',
  trace: 'a trace id',
  'param.NAME': 'a parameter that the type declares searchable; needs type:',
  after: 'created then or later: 2026-03-02, or 2h for two hours ago',
  before: 'created earlier',
};

export function parseSearch(text: string): Term[] {
  return [...text.matchAll(TERM)].map(([, name, quoted, bare]) => ({
    name: name ?? 'error',
    value: quoted !== undefined ? quoted.replace(/\\(.)/g, '$1') : (bare ?? ''),
  }));
}

export function writeTerm({ name, value }: Term): string {
  return /^[^\s"\\:]+$/.test(value) ? `${name}:${value}` : `${name}:"${value.replace(/["\\]/g, '\\$&')}"`;
}

export const writeSearch = (terms: Term[]): string => terms.map(writeTerm).join(' ');

/** With this term in place of all others of its name; without any where the value is empty. */
export function withTerm(text: string, name: string, value: string): string {
  const others = parseSearch(text).filter((term) => term.name !== name);
  return writeSearch(value ? [...others, { name, value }] : others);
}

export const termOf = (text: string, name: string): string =>
  parseSearch(text).find((term) => term.name === name)?.value ?? '';

/** As the API asks for it, or what is wrong in words. */
export function toQuery(text: string, now: number): { query: Query; problem?: string } {
  const query: Record<string, string | string[]> = {};
  const add = (name: string, value: string) => {
    query[name] = [...((query[name] as string[] | undefined) ?? []), value];
  };
  for (const { name, value } of parseSearch(text)) {
    const [kind, ...rest] = name.split('.');
    const part = rest.join('.');
    if (kind === 'status') value.split(',').filter(Boolean).forEach((state) => add('status', state));
    else if (kind === 'type') query.task_type = value;
    else if (kind === 'priority') query.priority = value;
    else if (kind === 'worker') query.worker_id = value;
    else if (kind === 'trace') query.trace_id = value;
    else if (kind === 'error') query.error = query.error ? `${query.error as string} ${value}` : value;
    else if (kind === 'tag' && part) add('tag', `${part}:${value}`);
    else if (kind === 'param' && part) add('parameter', `${part}:${value}`);
    else if (kind === 'after' || kind === 'before') {
      const at = instantOf(value, now);
      if (!at) return { query, problem: `${name}:${value} is no time; try 2h, 7d or 2026-03-02` };
      query[`created_${kind}`] = at;
    } else return { query, problem: `“${name}:” is not a qualifier; try status:, type:, tag.NAME:, error:` };
  }
  return { query };
}

function instantOf(text: string, now: number): string | undefined {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)([smhdw])$/.exec(text) ?? [];
  const sizes: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };
  const at = unit ? now - Number(amount) * (sizes[unit] ?? 0) * 1_000 : Date.parse(text);
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

export const TASK_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
