// The fleet: who is there, how they are, what they hold; sending one home.
import { useState } from 'preact/hooks';
import { call, get } from '../api/client';
import type { Tasks, Worker, Workers as Fleet } from '../api/types';
import { useAction, useFresh, useNow } from '../hooks';
import { goWith, Link, searchLink, taskLink, usePlace } from '../router';
import { mayAdminister, needs, session } from '../session';
import { useStore } from '../store';
import { Badge, Button, Card, Empty, Meter, Problem, shortId, Status, When } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { count, duration, plain, some } from '../words';
import { BlockedFrom } from './blocked-types';

const STATUSES = ['active', 'draining', 'unhealthy', 'dead'];
const MAX_IDS = 5;

export function Workers() {
  const { params } = usePlace();
  const status = params.get('status') ?? '';
  const cursor = params.get('cursor') ?? '';
  const fleet = useFresh(
    () => get<Fleet>('/api/v1/workers', { status: status ? [status] : [], limit: 100, cursor }),
    [status, cursor],
    { minMs: 1_000, everyMs: 5_000 },
  );
  const now = useNow();
  return (
    <>
      <header class="view-head">
        <h1>Workers</h1>
      </header>
      <div class="chips" role="group" aria-label="Statuses">
        {STATUSES.map((each) => (
          <button key={each} type="button" class={`chip ${each}`} aria-pressed={status === each} onClick={() => goWith({ status: status === each ? '' : each, cursor: '' })}>
            {each}
          </button>
        ))}
      </div>
      <Problem error={fleet.error} />
      {fleet.data && fleet.data.workers.length === 0 && <NoWorkers isFiltered={Boolean(status)} />}
      <div class="workers">
        {fleet.data?.workers.map((worker) => (
          <WorkerCard key={worker.worker_id} worker={worker} now={now} reload={fleet.reload} />
        ))}
      </div>
      {fleet.data?.next_cursor && <Button onClick={() => goWith({ cursor: fleet.data?.next_cursor ?? '' })}>More workers</Button>}
    </>
  );
}

function NoWorkers({ isFiltered }: { isFiltered: boolean }) {
  return (
    <Empty title={isFiltered ? 'No worker has this status' : 'No worker is here'}>
      <p>Tasks wait until one comes. Start one beside your code:</p>
      <pre>tideq worker --handlers tasks</pre>
    </Empty>
  );
}

function WorkerCard({ worker, now, reload }: { worker: Worker; now: number; reload: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const who = useStore(session);
  const drain = useAction(async () => {
    await call('POST', `/api/v1/workers/${encodeURIComponent(worker.worker_id)}/drain`);
    setAsking(false);
    reload();
  });
  const isGone = worker.status === 'dead';
  return (
    <Card class={`worker ${worker.status}`}>
      <div class="worker-head">
        <h2 title={worker.worker_id}>{worker.worker_id}</h2>
        <Status of={worker.status} />
        {worker.circuit !== 'closed' && (
          <Badge tone="bad">
            {worker.circuit === 'open' ? 'held back' : 'on trial'}
          </Badge>
        )}
      </div>
      <Meter share={worker.held / worker.capacity} label={`${worker.held} of ${worker.capacity} slots used`} />
      <p class="slots">
        <b>{count(worker.held)}</b> of {some(worker.capacity, 'slot')} used
        {!isGone && (
          <span class="faint">
            , last heartbeat <When at={worker.last_heartbeat_at} now={now} />
          </span>
        )}
        {isGone && (
          <span class="faint">
            , given up <When at={worker.died_at} now={now} />
          </span>
        )}
      </p>
      {worker.reason && (
        <p class="why" title={worker.reason}>
          {worker.reason_detail ?? worker.reason} (<When at={worker.since} now={now} />)
        </p>
      )}
      <p class="takes">
        {(worker.task_types ?? ['any type']).map((type) => (
          <span key={type} class="tag">
            {type}
          </span>
        ))}
        {worker.capabilities.map((capability) => (
          <span key={capability} class="tag has">
            {capability}
          </span>
        ))}
      </p>
      {worker.current_tasks.length > 0 && (
        <p class="takes" aria-label="Current tasks">
          {worker.current_tasks.slice(0, MAX_IDS).map((taskId) => (
            <Link key={taskId} to={taskLink(taskId)} class="id">{shortId(taskId)}</Link>
          ))}
          {worker.held > MAX_IDS && <span class="faint">and {count(worker.held - MAX_IDS)} more</span>}
        </p>
      )}
      <BlockedFrom worker={worker} now={now} />
      <Health worker={worker} now={now} />
      <div class="actions">
        <Button kind="quiet" onClick={() => setOpen(!isOpen)} pressed={isOpen}>
          {isOpen ? 'Hide tasks' : 'What it holds'}
        </Button>
        {worker.status !== 'dead' && worker.status !== 'draining' && (
          <Button disabled={!mayAdminister(who)} title={mayAdminister(who) ? undefined : needs('admin')} onClick={() => setAsking(true)}>
            Drain…
          </Button>
        )}
      </div>
      {isOpen && <Held workerId={worker.worker_id} />}
      {isAsking && (
        <Dialog title={`Drain ${worker.name}?`} onClose={() => setAsking(false)}>
          <p>It gets nothing new, finishes the {some(worker.held, 'task')} it holds, and leaves.</p>
          <Problem error={drain.error} />
          <div class="actions">
            <Button onClick={() => setAsking(false)}>Leave it</Button>
            <Button kind="danger" disabled={drain.isBusy} onClick={() => void drain.run()}>
              Drain
            </Button>
          </div>
        </Dialog>
      )}
    </Card>
  );
}

function Health({ worker, now }: { worker: Worker; now: number }) {
  const reported = Object.entries(worker.health as Record<string, unknown>).filter(([, value]) => typeof value !== 'object');
  const place = [worker.host, worker.health_port && `port ${worker.health_port}`].filter(Boolean).join(' ');
  return (
    <dl class="facts">
      {worker.version && <Fact name="version">{worker.version}</Fact>}
      {place && <Fact name="at">{place}</Fact>}
      {worker.current_load !== null && <Fact name="works on">{some(worker.current_load, 'task')}</Fact>}
      {worker.health_failures > 0 && <Fact name="probes failed">{worker.health_failures} in a row</Fact>}
      <Fact name="here for">{duration((now - Date.parse(worker.registered_at)) / 1_000)}</Fact>
      {reported.slice(0, 8).map(([name, value]) => (
        <Fact key={name} name={plain(name)}>
          {typeof value === 'number' ? String(Math.round(value * 10) / 10) : String(value)}
        </Fact>
      ))}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Held({ workerId }: { workerId: string }) {
  const now = useNow();
  const { data, error } = useFresh(
    () => get<Tasks>('/api/v1/tasks', { worker_id: workerId, status: ['assigned', 'executing'], limit: 50 }),
    [workerId],
    { everyMs: 5_000 },
  );
  return (
    <div class="held-tasks">
      <Problem error={error} />
      {data?.tasks.length === 0 && <p class="faint">Nothing at the moment.</p>}
      <ul>
        {data?.tasks.map((task) => (
          <li key={task.task_id}>
            <Status of={task.status} /> <Link to={taskLink(task.task_id)} class="id">{shortId(task.task_id)}</Link> {task.task_type}{' '}
            <span class="faint"><When at={task.started_at ?? task.assigned_at} now={now} /></span>
          </li>
        ))}
      </ul>
      <Link to={searchLink(`worker:${workerId}`)}>All it ever did</Link>
    </div>
  );
}
