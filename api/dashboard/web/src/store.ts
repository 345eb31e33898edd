// A value that views watch.
import { useEffect, useState } from 'preact/hooks';

export class Store<T> {
  private watchers = new Set<(value: T) => void>();

  constructor(public value: T) {}

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  watch(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => ({ of: store.value }));
  useEffect(() => {
    setValue({ of: store.value });
    return store.watch((next) => setValue({ of: next }));
  }, [store]);
  return value.of;
}

/** Kept in this browser: what a person prefers, never what a task holds. */
export function keptStore(name: string, fallback: string): Store<string> {
  const store = new Store(localStorage.getItem(`tideq.${name}`) ?? fallback);
  store.watch((value) => localStorage.setItem(`tideq.${name}`, value));
  return store;
}
