// Doing one thing to many tasks, a few at a time, telling how far it is. What a task's state does not allow is counted,
// not an error: others may have moved it since the list was made.
import { ApiError, call, get, type Query, taskPath } from './api/client';
import type { Tasks } from './api/types';

export type Verb = 'retry' | 'cancel' | 'purge';
export type Progress = { done: number; skipped: number; failed: number; total: number; problem: string };

const AT_ONCE = 6;
const PAGE = 200;

export const VERBS: Record<Verb, { does: string; did: string; takes: string[]; from: string }> = {
  retry: { does: 'Retry', did: 'Retried', takes: ['failed', 'cancelled', 'dead_letter'], from: 'failed, dead or cancelled' },
  cancel: { does: 'Cancel', did: 'Cancelled', takes: ['queued', 'assigned', 'executing'], from: 'queued or running' },
  purge: { does: 'Purge', did: 'Purged', takes: ['completed', 'failed', 'cancelled', 'dead_letter'], from: 'finished' },
};

/** What may be done to a task in this state. */
export const verbsFor = (state: string): Verb[] => (Object.keys(VERBS) as Verb[]).filter((verb) => VERBS[verb].takes.includes(state));

export function actOn(verb: Verb, id: string): Promise<unknown> {
  if (verb === 'retry') return call('POST', `${taskPath(id)}/retry`, {});
  return call('DELETE', verb === 'purge' ? `${taskPath(id)}?purge=true` : taskPath(id));
}

/** All tasks that match, page by page; only in the states the verb is for. */
export async function* matching(query: Query, verb: Verb): AsyncGenerator<string[]> {
  const wanted = (query.status as string[] | undefined) ?? [];
  const status = wanted.length ? wanted.filter((state) => VERBS[verb].takes.includes(state)) : VERBS[verb].takes;
  if (!status.length) return;
  let cursor: string | undefined;
  do {
    const page: Tasks = await get<Tasks>('/api/v1/tasks', { ...query, status, limit: PAGE, cursor });
    yield page.tasks.map((task) => task.task_id);
    cursor = page.next_cursor ?? undefined;
  } while (cursor);
}

export async function* chosen(ids: string[]): AsyncGenerator<string[]> {
  yield ids;
}

export async function runBulk(
  batches: AsyncGenerator<string[]>,
  act: (id: string) => Promise<unknown>,
  total: number,
  tell: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<Progress> {
  const progress: Progress = { done: 0, skipped: 0, failed: 0, total, problem: '' };
  for await (const ids of batches) {
    const waiting = [...ids];
    const work = async () => {
      for (let id = waiting.shift(); id && !signal.aborted; id = waiting.shift()) {
        await actAndCount(act, id, progress);
        tell({ ...progress });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (signal.aborted) break;
  }
  return { ...progress };
}

async function actAndCount(act: (id: string) => Promise<unknown>, id: string, progress: Progress): Promise<void> {
  try {
    await act(id);
    progress.done += 1;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 409 || error.status === 404)) progress.skipped += 1;
    else {
      progress.failed += 1;
      progress.problem = error instanceof Error ? error.message : String(error);
    }
  }
}
