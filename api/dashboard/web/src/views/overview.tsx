// The queue at a glance: numbers, the tide, the last minutes, what went wrong.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { get } from '../api/client';
import type { Ready, Stats, Task, Tasks, Trends } from '../api/types';
import { useFresh, useNow } from '../hooks';
import { Link, searchLink, taskLink } from '../router';
import { mayAdminister, session } from '../session';
import { useStore } from '../store';
import { Bars, StackedBars } from '../ui/bars';
import { Button, Card, Empty, Problem, shortId, When } from '../ui/basics';
import { Chart, type Line } from '../ui/chart';
import { count, duration, LIVE, OTHER_TYPES, percent, plain, some, TERMINAL } from '../words';
import { CleanUp } from './cleanup';
import { BlockedCard } from './blocked-types';
import { LastError } from './task-table';
import { TideCard } from './tide';

const KEPT_SAMPLES = 900;

export function Overview() {
  const stats = useFresh(() => get<Stats>('/api/v1/queue/stats'), [], { minMs: 1_000, everyMs: 5_000 });
  const hour = useFresh(() => get<Trends>('/api/v1/queue/trends', { window_seconds: 3_600 }), [], {
    minMs: 10_000,
    everyMs: 30_000,
  });
  const [isCleaning, setCleaning] = useState(false);
  const who = useStore(session);
  return (
    <>
      <header class="view-head">
        <h1>Overview</h1>
        {mayAdminister(who) && <Button onClick={() => setCleaning(true)}>Clean up…</Button>}
      </header>
      <Problem error={stats.error} />
      <StaleDuties />
      <Tiles stats={stats.data} hour={hour.data} />
      <BlockedCard stats={stats.data} />
      <TideCard />
      <Charts stats={stats.data} />
      <div class="columns">
        <Card title="Waiting, by priority">
          <Waiting counts={stats.data?.queue.by_priority} qualifier="priority" order={who?.priorities} />
        </Card>
        <Card title="Waiting, by type">
          <Waiting counts={stats.data?.queue.by_type} qualifier="type" />
        </Card>
        <Recoveries stats={stats.data} />
      </div>
      <ByType counts={stats.data?.queue.by_type_and_state} />
      {who?.has_history && <Failures />}
      {isCleaning && <CleanUp onClose={() => setCleaning(false)} />}
    </>
  );
}

// Where it is not ready at all the numbers cannot be had either, and say so.
function StaleDuties() {
  const ready = useFresh(() => get<Ready>('/readyz'), [], { minMs: 10_000, everyMs: 15_000 });
  const stale = [...(ready.data?.stale_duties ?? []), ...(ready.data?.stale_elsewhere ?? [])];
  if (ready.error || !stale.length) return null;
  const whose = (each: (typeof stale)[number]) => ('process' in each ? ` on ${each.process}` : '');
  const names = stale.map((each) => `${each.duty}${whose(each)} (not done for ${duration(each.seconds)})`).join(', ');
  return (
    <p class="problem" role="alert">
      The service takes work, and background duties fail: {names}. Its log says why.
    </p>
  );
}

function Tiles({ stats, hour }: { stats: Stats | undefined; hour: Trends | undefined }) {
  if (!stats) return <div class="tiles" aria-busy="true" />;
  const { queue, workers, throughput } = stats;
  const ended = throughput.completed_last_minute + throughput.failed_last_minute;
  const failing = ended ? throughput.failed_last_minute / ended : 0;
  const anHour = hour?.steps.reduce((sum, step) => sum + step.completed, 0);
  const lag = hour?.history_lag_seconds;
  const running = (queue.by_state.assigned ?? 0) + (queue.by_state.executing ?? 0);
  return (
    <div class="tiles">
      <Tile name="Waiting" value={count(queue.total_depth)} note={`oldest ${duration(queue.oldest_age_seconds)}`} to={searchLink('status:queued')} />
      <Tile name="Running" value={count(running)} note={`${count(queue.by_state.assigned ?? 0)} not started yet`} to={searchLink('status:assigned,executing')} />
      <Tile name="Done a minute" value={count(throughput.completed_last_minute)} note={anHour === undefined ? '' : `${count(anHour)} in the last hour`} to={searchLink('status:completed')} />
      <Tile name="Completed" value={count(queue.totals.completed)} note={since(queue.totals.since)} to={searchLink('status:completed')} />
      <Tile name="Failed" value={count(queue.totals.failed)} note={since(queue.totals.since)} to={searchLink('status:failed')} />
      <Tile name="Failing" value={percent(failing)} note={`${some(throughput.failed_last_minute, 'error')} this minute`} tone={failing > 0.1 ? 'bad' : ''} to={searchLink('status:failed,dead_letter')} />
      <Tile name="Dead letters" value={count(stats.dead_letters)} note="kept for a person" tone={stats.dead_letters ? 'warn' : ''} to="/ui/dead-letters" />
      <Tile name="Workers" value={count(workers.active)} note={fleet(stats)} tone={workers.unhealthy || workers.dead ? 'warn' : ''} to="/ui/workers" />
      <Tile name="History behind" value={lag === null ? 'unknown' : duration(lag)} note={lag === null ? 'unreachable' : 'until transitions are written'} tone={lag === null || (lag ?? 0) > 30 ? 'warn' : ''} />
    </div>
  );
}

/** History has all that were not purged; a queue without it counts from some day on. */
function since(at: string | null): string {
  return at ? `since ${new Date(at).toLocaleDateString()}` : 'in all';
}

function fleet({ workers }: Stats): string {
  const trouble = [workers.draining && `${workers.draining} draining`, workers.unhealthy && `${workers.unhealthy} unhealthy`, workers.dead && `${workers.dead} lost`];
  return [`${count(workers.used_capacity)} of ${count(workers.total_capacity)} slots used`, ...trouble.filter(Boolean)].join(', ');
}

type TileProps = { name: string; value: string; note: string; tone?: string; to?: string };

function Tile({ name, value, note, tone = '', to }: TileProps) {
  const content = (
    <>
      <span class="tile-name">{name}</span>
      <span class="tile-value">{value}</span>
      <span class="tile-note">{note}</span>
    </>
  );
  return to ? (
    <Link to={to} class={`tile ${tone}`}>
      {content}
    </Link>
  ) : (
    <div class={`tile ${tone}`}>{content}</div>
  );
}

function Charts({ stats }: { stats: Stats | undefined }) {
  const { data } = useFresh(() => get<Trends>('/api/v1/queue/trends'), [], { minMs: 4_000, everyMs: 10_000 });
  const depth = useDepth(stats);
  const drawn = useMemo(() => (data ? series(data) : undefined), [data]);
  if (!drawn) return <div class="charts" aria-busy="true" />;
  return (
    <div class="charts">
      <Card title="Throughput">
        <Chart label="Results and errors a second" times={drawn.times} lines={drawn.throughput} format={rate} />
      </Card>
      <Card title="Time waiting">
        <Chart label="Wait before the first attempt" times={drawn.times} lines={drawn.wait} format={duration} />
      </Card>
      <Card title="Time running">
        <Chart label="From start to result" times={drawn.times} lines={drawn.run} format={duration} />
      </Card>
      <Card title="Depth" aside={<span class="faint">since you look</span>}>
        <Chart label="Waiting and running tasks" times={depth.times} lines={depth.lines} format={short} />
      </Card>
    </div>
  );
}

const rate = (value: number): string => `${value >= 10 ? count(Math.round(value)) : (Math.round(value * 10) / 10).toString()}/s`;
const short = (value: number): string => (value >= 10_000 ? `${Math.round(value / 1_000)}k` : count(Math.round(value)));

function series(trends: Trends) {
  const { steps, step_seconds: width } = trends;
  // The last step is still under way: drawn, it would look like a fall.
  const whole = steps.slice(0, -1);
  const line = (label: string, colour: string, values: (number | null)[], isFilled = false): Line => ({ label, colour, values, isFilled });
  return {
    times: whole.map((step) => Date.parse(step.at) / 1_000),
    throughput: [
      line('done', '--completed-area', whole.map((step) => step.completed / width), true),
      line('failed', '--failed-area', whole.map((step) => step.failed / width)),
    ],
    wait: [
      line('p50', '--sea', whole.map((step) => step.wait_p50_seconds)),
      line('p95', '--accent-2', whole.map((step) => step.wait_p95_seconds)),
    ],
    run: [
      line('p50', '--sea', whole.map((step) => step.run_p50_seconds)),
      line('p95', '--accent-2', whole.map((step) => step.run_p95_seconds)),
    ],
  };
}

/** Depths are not kept anywhere: the page remembers those it saw. */
function useDepth(stats: Stats | undefined): { times: number[]; lines: Line[] } {
  const samples = useRef<{ at: number; waiting: number; running: number }[]>([]);
  const [seen, setSeen] = useState(0);
  useEffect(() => {
    if (!stats) return;
    const { queued = 0, assigned = 0, executing = 0 } = stats.queue.by_state as Record<string, number>;
    samples.current = [...samples.current, { at: Date.now() / 1_000, waiting: queued, running: assigned + executing }].slice(-KEPT_SAMPLES);
    setSeen((before) => before + 1);
  }, [stats]);
  return useMemo(() => {
    const all = samples.current;
    return {
      times: all.map((sample) => sample.at),
      lines: [
        { label: 'waiting', colour: '--waiting-area', values: all.map((sample) => sample.waiting), isFilled: true },
        { label: 'running', colour: '--running-area', values: all.map((sample) => sample.running) },
      ],
    };
  }, [seen]);
}

function Waiting({ counts, qualifier, order }: { counts: Record<string, number> | undefined; qualifier: string; order?: string[] | undefined }) {
  if (!counts || !Object.values(counts).some(Boolean)) {
    return <p class="faint">Nothing waits.</p>;
  }
  return <Bars counts={counts} linkTo={(name) => searchLink(`status:queued ${qualifier}:${name}`)} {...(order ? { order } : {})} />;
}

function ByType({ counts }: { counts: Record<string, Record<string, number>> | undefined }) {
  if (!counts || !Object.keys(counts).length) return null;
  return (
    <Card title="All tasks, by type and state">
      <StackedBars
        counts={counts}
        parts={[...LIVE, ...TERMINAL]}
        inWords={plain}
        linkTo={(type, state) =>
          searchLink([state && `status:${state}`, type !== OTHER_TYPES && `type:${type}`].filter(Boolean).join(' '))
        }
      />
    </Card>
  );
}

function Recoveries({ stats }: { stats: Stats | undefined }) {
  if (!stats) return null;
  const { recovery_stats: last } = stats;
  const rows: [string, number, string][] = [
    ['Tried again', last.retries_last_hour, 'after an error or a timeout'],
    ['Not started in time', last.assignment_timeouts_last_hour, 'came back by themselves'],
    ['Ran out of time', last.execution_timeouts_last_hour, 'deadline passed'],
    ['Worker died', last.worker_losses_last_hour, 'while executing'],
    ['Given up', last.dead_letters_last_hour, 'became dead letters'],
  ];
  return (
    <Card title="Brought back, last hour">
      <dl class="pairs">
        {rows.map(([name, value, note]) => (
          <div key={name} class={value ? '' : 'faint'}>
            <dt>
              {name} <small>{note}</small>
            </dt>
            <dd>{count(value)}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}

function Failures() {
  const now = useNow();
  const { data, error } = useFresh(
    () => get<Tasks>('/api/v1/tasks', { status: ['failed', 'dead_letter'], limit: 10 }),
    [],
    { minMs: 3_000, everyMs: 15_000 },
  );
  return (
    <Card title="Last failures" aside={<Link to={searchLink('status:failed,dead_letter')}>All of them</Link>}>
      <Problem error={error} />
      {data && data.tasks.length === 0 && (
        <Empty title="No failures">
          <p>Tasks that fail for good, or use up their retries, will be listed here with their errors.</p>
        </Empty>
      )}
      {data && data.tasks.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">Task</th>
                <th scope="col">Type</th>
                <th scope="col">Error</th>
                <th scope="col">Ended</th>
              </tr>
            </thead>
            <tbody>{data.tasks.map((task) => <FailureRow key={task.task_id} task={task} now={now} />)}</tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function FailureRow({ task, now }: { task: Task; now: number }) {
  return (
    <tr>
      <td>
        <Link to={taskLink(task.task_id)} class="id">
          {shortId(task.task_id)}
        </Link>
      </td>
      <td>{task.task_type}</td>
      <td class="grow cut">
        <LastError task={task} otherwise={task.reason} />
      </td>
      <td class="nowrap">
        <When at={task.completed_at} now={now} />
      </td>
    </tr>
  );
}
