// Calling the API: one function, one error, and where the key is kept.
import { Store } from '../store';

const KEY = 'tideq.key';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Whether a key is wanted that we do not have: the page shows the sign-in then. */
export const isLockedOut = new Store(false);

export function accessKey(): string {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? '';
}

export function keepKey(key: string, isRemembered: boolean): void {
  forgetKey();
  (isRemembered ? localStorage : sessionStorage).setItem(KEY, key);
}

export function forgetKey(): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

export function authorization(): Record<string, string> {
  const key = accessKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

export type Query = Record<string, string | number | boolean | string[] | undefined>;

export function withQuery(path: string, query: Query): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) params.append(name, each);
    else if (value !== undefined && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** The text of an answer: payloads must not go through numbers that JavaScript would round. */
export async function callText(method: string, path: string, body?: string): Promise<string> {
  const answer = await fetch(path, { method, headers: authorization(), body: body ?? null, cache: 'no-store' });
  const text = await answer.text();
  if (answer.ok) return text;
  if (answer.status === 401) isLockedOut.set(true);
  throw problemOf(answer.status, text);
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  return JSON.parse(await callText(method, path, body === undefined ? undefined : JSON.stringify(body))) as T;
}

export const get = <T>(path: string, query: Query = {}): Promise<T> => call<T>('GET', withQuery(path, query));

export const taskPath = (id: string): string => `/api/v1/tasks/${encodeURIComponent(id)}`;

function problemOf(status: number, text: string): ApiError {
  try {
    const problem = JSON.parse(text) as { type?: string; title?: string; detail?: string };
    const code = problem.type?.split('/').pop() ?? '';
    return new ApiError(status, code, problem.detail || problem.title || `The service answered ${status}.`);
  } catch {
    return new ApiError(status, '', `The service answered ${status}.`);
  }
}
