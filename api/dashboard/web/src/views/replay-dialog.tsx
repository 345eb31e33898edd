// Sending dead letters back: which, how many that is, how fast; then what became of it.
import { useEffect, useState } from 'preact/hooks';
import { call, get } from '../api/client';
import type { DeadLetters, Replayed } from '../api/types';
import { type Progress, runBulk } from '../bulk';
import { session } from '../session';
import { useStore } from '../store';
import { Button, Field, Text } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { count, plain, some } from '../words';
import { LeaveOrStop, Report, useRun } from './run';

export type ReplayFilter = { pattern?: string; task_type?: string; reason?: string; before?: string };

type ReplayDialogProps = { filter: ReplayFilter; types: string[]; reasons: string[]; onClose: () => void };

export function ReplayDialog({ filter, types, reasons, onClose }: ReplayDialogProps) {
  const who = useStore(session);
  const [wanted, setWanted] = useState(filter);
  const [priority, setPriority] = useState('');
  const [rate, setRate] = useState('');
  const [keepsBudgets, setKeepsBudgets] = useState(false);
  const matched = usePreview(wanted);
  const run = useRun();
  const isGroup = Boolean(filter.pattern);

  const begin = () => {
    const terms = { reset_retry_count: !keepsBudgets, ...(priority ? { new_priority: priority } : {}) };
    const total = matched ?? 0;
    return run.begin(total, (tell, signal) =>
      rate ? atRate(wanted, terms, Number(rate), total, tell, signal) : atOnce(wanted, terms),
    );
  };
  const close = () => {
    run.stop();
    onClose();
  };
  return (
    <Dialog title={isGroup ? 'Replay this group' : 'Replay by filter'} onClose={close}>
      <p>Each goes back to the queue and ranks as if it were submitted now.</p>
      {!isGroup && !run.progress && (
        <>
          <Choice label="Type" none="any type" value={wanted.task_type ?? ''} values={types} onValue={(task_type) => setWanted(without({ ...wanted, task_type }))} />
          <Choice label="Given up for" none="any reason" value={wanted.reason ?? ''} values={reasons} onValue={(reason) => setWanted(without({ ...wanted, reason }))} />
        </>
      )}
      {!run.progress && (
        <>
          <Choice label="New priority" none="as before" value={priority} values={who?.priorities ?? []} onValue={setPriority} />
          <Field label="At most so many a second" hint="Empty sends all at once; a rate spares what is behind the workers.">
            <Text type="number" min="0.1" step="any" value={rate} onValue={setRate} />
          </Field>
          <label class="inline">
            <input type="checkbox" checked={keepsBudgets} onChange={() => setKeepsBudgets(!keepsBudgets)} /> keep the retries that are used up
          </label>
          <p class="preview" aria-live="polite">
            {matched === undefined ? 'Counting…' : `${some(matched, 'dead letter')} will go back.`}
          </p>
        </>
      )}
      <Report run={run} did="Replayed" />
      <div class="actions">
        <LeaveOrStop run={run} onClose={close} />
        {!run.progress && (
          <Button kind="main" disabled={!matched} onClick={() => void begin()}>
            Replay {matched === undefined ? '' : count(matched)}
          </Button>
        )}
      </div>
    </Dialog>
  );
}

type ChoiceProps = { label: string; none: string; value: string; values: string[]; onValue: (value: string) => void };

export function Choice({ label, none, value, values, onValue }: ChoiceProps) {
  return (
    <Field label={label}>
      <select value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        <option value="">{none}</option>
        {values.map((each) => (
          <option key={each} value={each}>
            {plain(each)}
          </option>
        ))}
      </select>
    </Field>
  );
}

const without = (filter: ReplayFilter): ReplayFilter => Object.fromEntries(Object.entries(filter).filter(([, value]) => value));

function usePreview(filter: ReplayFilter): number | undefined {
  const [matched, setMatched] = useState<number>();
  useEffect(() => {
    let isOver = false;
    setMatched(undefined);
    call<Replayed>('POST', '/api/v1/dlq/replay', { filter, dry_run: true })
      .then((found) => !isOver && setMatched(found.matched))
      .catch(() => undefined);
    return () => {
      isOver = true;
    };
  }, [JSON.stringify(filter)]);
  return matched;
}

async function atOnce(filter: ReplayFilter, terms: object): Promise<Progress> {
  const found = await call<Replayed>('POST', '/api/v1/dlq/replay', { filter, ...terms });
  const skipped = found.matched - found.replayed - found.refused;
  const problem = found.refused ? 'no lane was free, or the rank out of range' : '';
  return { done: found.replayed, skipped, failed: found.refused, total: found.matched, problem };
}

/** One after the other, with a pause in between. */
async function atRate(filter: ReplayFilter, terms: object, rate: number, total: number, tell: (progress: Progress) => void, signal: AbortSignal): Promise<Progress> {
  let next = performance.now();
  const turn = async () => {
    const mine = next;
    next = Math.max(next, performance.now()) + 1_000 / rate;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, mine - performance.now())));
  };
  const replayOne = async (id: string) => {
    await turn();
    if (!signal.aborted) await call('POST', `/api/v1/dlq/${encodeURIComponent(id)}/replay`, terms);
  };
  return runBulk(deadOnes(filter), replayOne, total, tell, signal);
}

async function* deadOnes(filter: ReplayFilter): AsyncGenerator<string[]> {
  let cursor: string | undefined;
  do {
    const page: DeadLetters = await get<DeadLetters>('/api/v1/dlq', { ...filter, limit: 100, cursor });
    yield page.tasks.map((task) => task.task_id);
    cursor = page.next_cursor ?? undefined;
  } while (cursor);
}
