// Removing finished tasks for good: what, how old, how many at most, then how many it were.
import { useEffect, useState } from 'preact/hooks';
import { call, get, withQuery } from '../api/client';
import type { Tasks } from '../api/types';
import { useAction } from '../hooks';
import { Button, Field, Problem } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { count, plain, some, TERMINAL } from '../words';

const AGES: [string, string, number][] = [
  ['1h', 'an hour', 3_600],
  ['1d', 'a day', 86_400],
  ['7d', 'a week', 604_800],
  ['30d', '30 days', 2_592_000],
];

export function CleanUp({ onClose }: { onClose: () => void }) {
  const [age, setAge] = useState('7d');
  const [states, setStates] = useState<string[]>(['completed']);
  const [most, setMost] = useState<Tasks>();
  const [deleted, setDeleted] = useState<number>();
  const seconds = AGES.find(([value]) => value === age)?.[2] ?? 0;

  useEffect(() => {
    setMost(undefined);
    if (!states.length) return;
    const created_before = new Date(Date.now() - seconds * 1_000).toISOString();
    let isOver = false;
    get<Tasks>('/api/v1/tasks', { status: states, created_before, count: true, limit: 1 })
      .then((found) => !isOver && setMost(found))
      .catch(() => undefined);
    return () => {
      isOver = true;
    };
  }, [age, states.join()]);

  const clean = useAction(async () => {
    const path = withQuery('/api/v1/tasks', { older_than: age, status: states });
    setDeleted((await call<{ deleted: number }>('DELETE', path)).deleted);
  });
  const toggle = (state: string) =>
    setStates(states.includes(state) ? states.filter((each) => each !== state) : [...states, state]);

  return (
    <Dialog title="Clean up" onClose={onClose}>
      <p>Removes finished tasks from the store and from history, for good. Live tasks are never touched.</p>
      <fieldset class="choices">
        <legend>Which ones</legend>
        {TERMINAL.map((state) => (
          <label key={state}>
            <input type="checkbox" checked={states.includes(state)} onChange={() => toggle(state)} /> {plain(state)}
          </label>
        ))}
      </fieldset>
      <Field label="Ended longer ago than">
        <select value={age} onChange={(event) => setAge(event.currentTarget.value)}>
          {AGES.map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <p class="preview" aria-live="polite">
        {deleted !== undefined ? `${some(deleted, 'task')} removed.` : preview(most, states.length)}
      </p>
      <Problem error={clean.error} />
      <div class="actions">
        <Button onClick={onClose}>{deleted === undefined ? 'Keep them' : 'Close'}</Button>
        {deleted === undefined && (
          <Button kind="danger" disabled={!states.length || clean.isBusy} onClick={() => void clean.run()}>
            {clean.isBusy ? 'Removing…' : 'Remove for good'}
          </Button>
        )}
      </div>
    </Dialog>
  );
}

function preview(most: Tasks | undefined, chosen: number): string {
  if (!chosen) return 'Choose at least one kind.';
  if (!most) return 'Counting…';
  return most.total_is_exact ? `At most ${some(most.total ?? 0, 'task')}.` : `More than ${count(most.total ?? 0)} tasks.`;
}
