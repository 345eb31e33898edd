// What is paused, for the badge in the header.
import { get } from './api/client';
import type { Limit, Limits } from './api/types';
import { Store } from './store';

const EVERY_MS = 3_000;

export const pauses = new Store<Limit[]>([]);

export function refreshPauses(): void {
  get<Limits>('/api/v1/queue/limits')
    .then((found) => pauses.set(found.limits.filter((limit) => limit.paused)))
    .catch(() => undefined);
}

export function watchPauses(): () => void {
  refreshPauses();
  const timer = setInterval(() => !document.hidden && refreshPauses(), EVERY_MS);
  return () => clearInterval(timer);
}
