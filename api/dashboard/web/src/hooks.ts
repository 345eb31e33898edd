// What views do again and again: load and keep fresh, know the time, react to keys.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './api/client';
import { feed, liveState } from './api/live';

export type Loaded<T> = { data: T | undefined; error: ApiError | undefined; reload: () => void };

type Freshness = { minMs?: number; everyMs?: number };

/** Loads now, when something happened in the queue (no more often than `minMs`), and every so often anyway. */
export function useFresh<T>(load: () => Promise<T>, deps: unknown[], freshness: Freshness = {}): Loaded<T> {
  const { minMs = 1_000, everyMs = 10_000 } = freshness;
  const [state, setState] = useState<{ data?: T; error?: ApiError }>({});
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    let isOver = false;
    let isBusy = false;
    let isWanted = false;
    let startedAt = 0;
    let timer = 0;

    const run = async () => {
      clearTimeout(timer);
      isBusy = true;
      isWanted = false;
      startedAt = performance.now();
      try {
        const data = await load();
        if (!isOver) setState({ data });
      } catch (error) {
        if (!isOver) setState((before) => ({ ...before, error: asError(error) }));
      }
      isBusy = false;
      if (isOver) return;
      if (isWanted) want();
      else timer = window.setTimeout(idle, liveState.value === 'polling' ? Math.min(everyMs, 3_000) : everyMs);
    };
    const idle = () => {
      if (!document.hidden) void run();
      else timer = window.setTimeout(idle, 1_000);
    };
    const want = () => {
      isWanted = true;
      if (isBusy || document.hidden) return;
      clearTimeout(timer);
      timer = window.setTimeout(() => void run(), Math.max(0, startedAt + minMs - performance.now()));
    };
    const seen = () => {
      if (!document.hidden) want();
    };
    again.current = () => {
      startedAt = -minMs;
      want();
    };
    void run();
    const unwatch = feed.watch(want);
    const unwatchState = liveState.watch(want);
    document.addEventListener('visibilitychange', seen);
    return () => {
      isOver = true;
      clearTimeout(timer);
      unwatch();
      unwatchState();
      document.removeEventListener('visibilitychange', seen);
    };
  }, deps);

  const reload = useCallback(() => again.current(), []);
  return { data: state.data, error: state.error, reload };
}

export function asError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, 'unreachable', 'The service cannot be reached; trying again.');
}

/** The time, so that ages on screen grow. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Runs an action, tells whether it is running, and how it failed. */
export function useAction<A extends unknown[]>(act: (...args: A) => Promise<void>) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const run = async (...args: A) => {
    setBusy(true);
    setError(undefined);
    try {
      await act(...args);
    } catch (problem) {
      setError(asError(problem));
    }
    setBusy(false);
  };
  return { run, isBusy, error };
}
