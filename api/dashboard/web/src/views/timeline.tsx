// A task's attempts over time: how long it waited, was assigned, ran, and waited to be tried again.
import type { RecordedTask, Transition } from '../api/types';
import { duration, plain } from '../words';

type Bar = { kind: string; from: number; to: number; isOpen: boolean };
type Row = { name: string; outcome: string; bars: Bar[] };

const KINDS: Record<string, string> = {
  queued: 'waiting in the queue',
  scheduled: 'waiting for its time',
  assigned: 'assigned, not started',
  executing: 'executing',
  backoff: 'waiting to be tried again',
};
const BACKOFF = ['error', 'timed_out', 'worker_lost', 'assignment_lapsed', 'released'];

export function Timeline({ task, now }: { task: RecordedTask; now: number }) {
  const rows = rowsOf(task.state_history, now);
  if (!rows.length) return <p class="faint">Nothing has happened yet.</p>;
  const bars = rows.flatMap((row) => row.bars);
  const first = Math.min(...bars.map((bar) => bar.from));
  const span = Math.max(1, Math.max(...bars.map((bar) => bar.to)) - first);
  return (
    <div class="timeline">
      {rows.map((row, place) => (
        <div key={place} class="timeline-row">
          <span class="timeline-name">{row.name}</span>
          <div class="timeline-track">
            {row.bars.map((bar, each) => (
              <div
                key={each}
                class={`span ${bar.kind} ${bar.isOpen ? 'open' : ''}`}
                style={{ left: `${((bar.from - first) / span) * 100}%`, width: `${((bar.to - bar.from) / span) * 100}%` }}
                title={`${KINDS[bar.kind] ?? bar.kind}: ${duration((bar.to - bar.from) / 1_000)}`}
              />
            ))}
          </div>
          <span class="timeline-words">
            {row.bars.map((bar) => `${bar.kind} ${duration((bar.to - bar.from) / 1_000)}`).join(' · ')}
            {row.outcome && <b> → {row.outcome}</b>}
          </span>
        </div>
      ))}
      <ul class="timeline-legend">
        {Object.entries(KINDS).map(([kind, words]) => (
          <li key={kind}>
            <i class={`span ${kind}`} /> {words}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A row for each attempt, with the waiting before it. */
function rowsOf(history: Transition[], now: number): Row[] {
  const rows: Row[] = [];
  let row: Row | undefined;
  history.forEach((step, place) => {
    const next = history[place + 1];
    const from = Date.parse(step.at);
    const to = next ? Date.parse(next.at) : Math.max(now, from);
    const kind = kindOf(step);
    if (step.state === 'queued' && row) {
      row.outcome = plain(step.reason);
      row = undefined;
    }
    if (!kind) {
      if (row) row.outcome = plain(step.state);
      row = undefined;
      return;
    }
    if (!row) {
      row = { name: `Attempt ${rows.length + 1}`, outcome: '', bars: [] };
      rows.push(row);
    }
    row.bars.push({ kind, from, to, isOpen: !next });
  });
  return rows;
}

function kindOf(step: Transition): string | undefined {
  if (step.state === 'queued') return BACKOFF.includes(step.reason) ? 'backoff' : 'queued';
  return step.state === 'assigned' || step.state === 'executing' ? step.state : undefined;
}
