// Workers that get no tasks of a type for a while, because they failed at most of its last ones.
import { get } from '../api/client';
import type { BlockedType, Stats, Worker, Workers as Fleet } from '../api/types';
import { useFresh, useNow } from '../hooks';
import { Link } from '../router';
import { Card, Problem, When } from '../ui/basics';
import { some } from '../words';

const MAX_SHOWN = 8;

/** From which types one worker is held back, until when and why. */
export function BlockedFrom({ worker, now }: { worker: Worker; now: number }) {
  if (worker.status === 'dead' || !worker.blocked_types.length) return null;
  const left = worker.blocked_types.length - MAX_SHOWN;
  return (
    <ul class="held" aria-label="Held back from">
      {worker.blocked_types.slice(0, MAX_SHOWN).map((each) => (
        <li key={each.task_type ?? '*'}>
          <BlockedWords each={each} now={now} />
        </li>
      ))}
      {left > 0 && <li>and {some(left, 'more type')}</li>}
    </ul>
  );
}

/** All of them on the overview, where there are any. */
export function BlockedCard({ stats }: { stats: Stats | undefined }) {
  if (!stats?.workers.open_circuits) return null;
  return <BlockedWorkers />;
}

function BlockedWorkers() {
  const now = useNow();
  const fleet = useFresh(() => get<Fleet>('/api/v1/workers', { limit: 500 }), [], { minMs: 1_000, everyMs: 5_000 });
  const rows = (fleet.data?.workers ?? [])
    .filter((worker) => worker.status !== 'dead')
    .flatMap((worker) => worker.blocked_types.map((each) => ({ worker, each })));
  return (
    <Card title="Held back for failing" aside={<Link to="/ui/workers">All workers</Link>}>
      <Problem error={fleet.error} />
      <ul class="held">
        {rows.slice(0, MAX_SHOWN).map(({ worker, each }) => (
          <li key={`${worker.worker_id} ${each.task_type}`}>
            <b>{worker.worker_id}</b>: <BlockedWords each={each} now={now} />
          </li>
        ))}
        {rows.length > MAX_SHOWN && <li>and {rows.length - MAX_SHOWN} more</li>}
      </ul>
    </Card>
  );
}

function BlockedWords({ each, now }: { each: BlockedType; now: number }) {
  const type = each.task_type === null ? 'any type' : each.task_type;
  return each.until === null ? (
    <>
      a few tasks of <b>{type}</b> only: {each.reason}
    </>
  ) : (
    <>
      no tasks of <b>{type}</b>, tried again <When at={each.until} now={now} />: {each.reason}
    </>
  );
}
