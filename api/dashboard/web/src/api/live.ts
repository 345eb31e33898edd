// One event stream a tab: closed while the tab is hidden, gone on from the last event, replaced by asking now and then
// where it cannot be had. `EventSource` cannot send a key, so the stream is read with `fetch`.
import { Store } from '../store';
import { authorization, isLockedOut, withQuery } from './client';
import type { TaskEvent } from './types';

export type LiveState = 'connecting' | 'live' | 'polling' | 'paused';
export type Happening = { events: TaskEvent[]; isGap: boolean };

const FLUSH_MS = 250;
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

export const liveState = new Store<LiveState>('connecting');

type Watcher = (happening: Happening) => void;

class Feed {
  private watchers = new Set<Watcher>();
  private waiting: TaskEvent[] = [];
  private isGap = false;
  private lastId = '';
  private controller: AbortController | null = null;
  private failures = 0;
  private onlyTask = '';
  private timer = 0;
  private hasBegun = false;

  /** When the page knows that it may ask. */
  begin(): void {
    if (this.hasBegun) return this.restart();
    this.hasBegun = true;
    document.addEventListener('visibilitychange', () => this.restart());
    isLockedOut.watch(() => this.restart());
    setInterval(() => this.flush(), FLUSH_MS);
    this.restart();
  }

  watch(watcher: Watcher): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** A view of one task need not hear of all the others. */
  narrow(taskId: string): void {
    if (taskId === this.onlyTask) return;
    this.onlyTask = taskId;
    this.lastId = '';
    this.restart();
  }

  private restart(): void {
    this.controller?.abort();
    clearTimeout(this.timer);
    if (document.hidden || isLockedOut.value) return liveState.set('paused');
    void this.listen(new AbortController());
  }

  private async listen(controller: AbortController): Promise<void> {
    this.controller = controller;
    if (this.failures === 0) liveState.set('connecting');
    try {
      await this.read(controller.signal);
    } catch {
      if (controller.signal.aborted) return;
      this.failures += 1;
    }
    if (controller.signal.aborted) return;
    if (this.failures > 1) liveState.set('polling');
    this.timer = window.setTimeout(() => this.restart(), RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)]);
  }

  private async read(signal: AbortSignal): Promise<void> {
    const path = withQuery('/api/v1/events', { task_id: this.onlyTask, last_event_id: this.lastId });
    const answer = await fetch(path, { headers: authorization(), signal, cache: 'no-store' });
    if (answer.status === 401) isLockedOut.set(true);
    if (!answer.ok || !answer.body) throw new Error(`events: ${answer.status}`);
    this.failures = 0;
    liveState.set('live');
    let rest = '';
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) this.take(block);
    }
  }

  private take(block: string): void {
    const fields = new Map<string, string>();
    for (const line of block.split('\n')) {
      const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
      if (name) fields.set(name, value ?? '');
    }
    this.lastId = fields.get('id') ?? this.lastId;
    if (fields.get('event') === 'gap') this.isGap = true;
    if (fields.get('event') === 'transition') this.waiting.push(JSON.parse(fields.get('data') ?? '{}') as TaskEvent);
  }

  private flush(): void {
    if (!this.waiting.length && !this.isGap) return;
    const happening = { events: this.waiting, isGap: this.isGap };
    this.waiting = [];
    this.isGap = false;
    for (const watcher of [...this.watchers]) watcher(happening);
  }
}

export const feed = new Feed();
