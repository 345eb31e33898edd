// One task: where it is and why, every attempt, what went in, what came out.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, callText, get, taskPath, withQuery } from '../api/client';
import { rawElements, rawMembers } from '../api/json';
import { feed } from '../api/live';
import type { Explanation, RecordedTask, TaskError } from '../api/types';
import { actOn, type Verb, VERBS } from '../bulk';
import { useAction, useFresh, useNow } from '../hooks';
import { go, Link, searchLink } from '../router';
import { mayProduce, needs, session } from '../session';
import { useStore } from '../store';
import { Badge, Button, Card, Copy, Empty, Meter, Problem, Status, When } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { Document } from '../ui/document';
import { writeTerm } from '../search';
import { ago, count, duration, instant, LIVE, plain, REVIVABLE, TERMINAL, zone } from '../words';
import { attempts } from './task-table';
import { Timeline } from './timeline';

type Read = { task: RecordedTask; raw: Map<string, string> };

async function readTask(id: string): Promise<Read> {
  const path = taskPath(id);
  const text = await callText('GET', withQuery(path, { include_history: true })).catch((error: unknown) => {
    // Without history the task itself can still be shown.
    if (error instanceof ApiError && error.status === 503) return callText('GET', path);
    throw error;
  });
  return { task: JSON.parse(text) as RecordedTask, raw: rawMembers(text) };
}

export function TaskView({ id }: { id: string }) {
  useEffect(() => {
    feed.narrow(id);
    return () => feed.narrow('');
  }, [id]);
  const { data, error, reload } = useFresh(() => readTask(id), [id], { minMs: 300, everyMs: 60_000 });
  if (error?.status === 404) {
    return (
      <Empty title="There is no such task">
        <p>It was never submitted here, or has been purged or pruned from history.</p>
        <p>
          <Link to="/ui/tasks">All tasks</Link>
        </p>
      </Empty>
    );
  }
  if (!data) return <Problem error={error} />;
  return <TaskPage read={data} problem={error} reload={reload} />;
}

function TaskPage({ read, problem, reload }: { read: Read; problem: ApiError | undefined; reload: () => void }) {
  const { task, raw } = read;
  const now = useNow();
  return (
    <>
      <header class="view-head">
        <h1>
          <Status of={task.status} /> {task.task_type}
        </h1>
        <Actions task={task} reload={reload} />
      </header>
      <p class="task-id">
        <code>{task.task_id}</code> <Copy text={task.task_id} what="Copy id" />
      </p>
      <Problem error={problem} />
      {task.progress && task.status === 'executing' && (
        <Card>
          <Meter share={task.progress.percent / 100} label={`${task.progress.percent} percent`} />
          <p class="progress-words">
            <b>{Math.round(task.progress.percent)} %</b> {task.progress.message}
          </p>
        </Card>
      )}
      <div class="columns task-columns">
        <Explain task={task} />
        <Facts task={task} now={now} />
      </div>
      <Card title="Attempts">
        {task.state_history ? <Timeline task={task} now={now} /> : <p class="faint">No history is kept here, so attempts are not listed.</p>}
      </Card>
      <Errors task={task} raw={raw} />
      <div class="columns task-columns">
        <Card title="Parameters">
          <Document text={raw.get('parameters') ?? '{}'} label="Parameters" />
        </Card>
        <Card title="Result">
          {task.status === 'completed' ? <Document text={raw.get('result') ?? 'null'} label="Result" /> : <p class="faint">There is one when the task is completed.</p>}
        </Card>
      </div>
      {task.state_history && <History task={task} />}
    </>
  );
}

function Actions({ task, reload }: { task: RecordedTask; reload: () => void }) {
  const who = useStore(session);
  const [verb, setVerb] = useState<Verb>();
  const act = useAction(async (verb: Verb) => {
    await actOn(verb, task.task_id);
    setVerb(undefined);
    if (verb === 'purge') go('/ui/tasks');
    else reload();
  });
  const may = mayProduce(who);
  const why = may ? undefined : needs('producer');
  return (
    <div class="group">
      {REVIVABLE.includes(task.status) && (
        <Button kind="main" disabled={!may || act.isBusy} title={why} onClick={() => void act.run('retry')}>
          Retry
        </Button>
      )}
      {LIVE.includes(task.status) && (
        <Button disabled={!may} title={why} onClick={() => setVerb('cancel')}>
          Cancel
        </Button>
      )}
      <Button disabled={!may} title={why ?? 'A new task like this one'} onClick={() => go(`/ui/submit?like=${task.task_id}`)}>
        Clone and edit
      </Button>
      {TERMINAL.includes(task.status) && (
        <Button kind="danger" disabled={!may} title={why} onClick={() => setVerb('purge')}>
          Purge
        </Button>
      )}
      {!verb && <Problem error={act.error} />}
      {verb && (
        <Dialog title={`${VERBS[verb].does} this task?`} onClose={() => setVerb(undefined)}>
          <p>{verb === 'purge' ? 'It will be gone for good, from history too.' : 'A worker that holds it must stop. It can be retried later.'}</p>
          <Problem error={act.error} />
          <div class="actions">
            <Button onClick={() => setVerb(undefined)}>Leave it</Button>
            <Button kind="danger" disabled={act.isBusy} onClick={() => void act.run(verb)}>
              {VERBS[verb].does}
            </Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

function Explain({ task }: { task: RecordedTask }) {
  const { data } = useFresh(() => get<Explanation>(`${taskPath(task.task_id)}/explain`), [task.task_id, task.version], { everyMs: 5_000 });
  const now = useNow();
  return (
    <Card title="Why it is here">
      <p class="reason">{isScheduled(task) ? <Scheduled at={task.visible_at ?? ''} now={now} /> : (REASONS[task.reason] ?? plain(task.reason))}</p>
      {data && (
        <>
          <ul class="held">
            {data.blocked_by.map((words) => (
              <li key={words}>{words}</li>
            ))}
          </ul>
          <dl class="pairs">
            {data.queue_position !== null && <Pair name="Before it in its lane">{count(data.queue_position)}</Pair>}
            {data.global_position !== null && <Pair name="Before it in all lanes">{count(data.global_position)}</Pair>}
            {LIVE.includes(task.status) && <Pair name="Workers that could take it">{count(data.serving_workers)}</Pair>}
            {data.visible_at && <Pair name="Hidden until"><When at={data.visible_at} now={now} /></Pair>}
            {task.estimated_wait_seconds !== null && <Pair name="Likely wait">{duration(task.estimated_wait_seconds)}</Pair>}
          </dl>
        </>
      )}
    </Card>
  );
}

const isScheduled = (task: RecordedTask): boolean => task.status === 'queued' && task.visible_at !== null && task.visible_at === task.eligible_at;

function Scheduled({ at, now }: { at: string; now: number }) {
  const chosen = useStore(zone);
  return <>It is scheduled: it will run {ago(at, now)}, at {instant(at, chosen)}, as soon as a worker is free.</>;
}

const REASONS: Record<string, string> = {
  submitted: 'It was submitted and waits for a worker.',
  claimed: 'A worker took it and has not said yet that it started.',
  started: 'Its worker is executing it.',
  succeeded: 'Its worker delivered a result.',
  error: 'It failed with an error that may go away, and waits before it is tried again.',
  not_retriable: 'Its worker said that trying again would not help.',
  retries_exhausted: 'It failed once more than its retries allow.',
  timed_out: 'It was not finished before its deadline.',
  assignment_lapsed: 'It was handed out and never started, so it came back.',
  never_started: 'It was handed out again and again and never started.',
  worker_lost: 'Its worker died while executing it.',
  poison: 'Every worker that executed it died.',
  released: 'Its worker handed it back unfinished; it keeps its place.',
  cancelled: 'It was cancelled by hand.',
  retried: 'It was retried by hand.',
  replayed: 'It was replayed from the dead letters.',
};

function Pair({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Facts({ task, now }: { task: RecordedTask; now: number }) {
  const who = useStore(session);
  const trace = task.trace_is_sampled && who?.trace_url_template?.replace('{trace_id}', encodeURIComponent(task.trace_id));
  return (
    <Card title="The task">
      <dl class="pairs">
        <Pair name="Priority">{task.priority}</Pair>
        <Pair name="Created"><When at={task.created_at} now={now} /></Pair>
        {task.completed_at && <Pair name="Ended"><When at={task.completed_at} now={now} /></Pair>}
        <Pair name="In this state for">{duration(task.completed_at ? (now - Date.parse(task.completed_at)) / 1_000 : task.current_state_duration_seconds)}</Pair>
        <Pair name="Attempts">{`${attempts(task)}; ${task.retry_count} of ${task.max_retries} retries used`}</Pair>
        {(task.losses > 0 || task.deliveries > 0) && <Pair name="Workers lost, deliveries lapsed">{`${task.losses}, ${task.deliveries}`}</Pair>}
        <Pair name="May run for">{duration(task.timeout_seconds)}</Pair>
        {task.required_capabilities.length > 0 && <Pair name="Needs">{task.required_capabilities.join(', ')}</Pair>}
        {task.assigned_worker_id && <Pair name="Worker"><Link to={searchLink(`worker:${task.assigned_worker_id}`)}>{task.assigned_worker_id}</Link></Pair>}
        <Pair name="Submitted by">{task.client_id}</Pair>
        {task.idempotency_key && <Pair name="Idempotency key">{task.idempotency_key}</Pair>}
        {Object.entries(task.tags as Record<string, string>).map(([name, value]) => (
          <Pair key={name} name={`Tag ${name}`}><Link to={searchLink(writeTerm({ name: `tag.${name}`, value }))}>{value}</Link></Pair>
        ))}
        <Pair name="Trace">
          {trace ? <a href={trace} target="_blank" rel="noreferrer noopener">{task.trace_id}</a> : <code>{task.trace_id}</code>}
        </Pair>
      </dl>
    </Card>
  );
}

function Errors({ task, raw }: { task: RecordedTask; raw: Map<string, string> }) {
  const texts = rawElements(raw.get('errors') ?? '[]');
  if (!texts.length) return null;
  const failed = (task.state_history ?? []).filter((step) => step.error);
  return (
    <Card title={errorsTitle(texts.length, task.error_count)}>
      {texts
        .map((text, place) => <ErrorEntry key={place} text={text} attempt={failed.length === texts.length ? failed[place]?.attempt : undefined} isLast={place === texts.length - 1} />)
        .reverse()}
    </Card>
  );
}

function errorsTitle(shown: number, all: number): string {
  if (all > shown) return `The last ${shown} errors of ${all}, the last first`;
  return shown === 1 ? 'The error' : `The errors of ${shown} attempts, the last first`;
}

function ErrorEntry({ text, attempt, isLast }: { text: string; attempt: number | undefined; isLast: boolean }) {
  const error = JSON.parse(text) as TaskError;
  const traceback = tracebackOf(error.details);
  const details = rawMembers(text).get('details');
  return (
    <details class="error-entry" open={isLast}>
      <summary>
        {attempt !== undefined && <Badge>attempt {attempt}</Badge>} {error.code && <Badge tone={error.retriable ? 'warn' : 'bad'}>{error.code}</Badge>}{' '}
        <span class="error-message">{error.message}</span>
      </summary>
      {traceback && (
        <div class="document">
          <div class="document-bar"><span class="faint">traceback</span><Copy text={traceback} /></div>
          <pre tabIndex={0} aria-label="Traceback">{traceback}</pre>
        </div>
      )}
      {!traceback && details && details !== 'null' && <Document text={details} label="Details" />}
    </details>
  );
}

function tracebackOf(details: unknown): string {
  if (typeof details !== 'object' || details === null) return '';
  const trace = (details as Record<string, unknown>).traceback ?? (details as Record<string, unknown>).stack;
  return Array.isArray(trace) ? trace.join('') : typeof trace === 'string' ? trace : '';
}

function History({ task }: { task: RecordedTask }) {
  const chosen = useStore(zone);
  return (
    <Card title="Everything that happened" aside={task.history_lag_seconds > 0 && <Badge tone="warn">history is {duration(task.history_lag_seconds)} behind</Badge>}>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">Version</th>
              <th scope="col">State</th>
              <th scope="col">Why</th>
              <th scope="col">When</th>
              <th scope="col" class="number">Attempt</th>
              <th scope="col">Worker</th>
            </tr>
          </thead>
          <tbody>
            {task.state_history.map((step) => (
              <tr key={step.version}>
                <td class="number">{step.version}</td>
                <td><Status of={step.state} /></td>
                <td>{plain(step.reason)}</td>
                <td class="nowrap">{instant(step.at, chosen)}</td>
                <td class="number">{step.attempt || ''}</td>
                <td>{step.worker_id ?? ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
