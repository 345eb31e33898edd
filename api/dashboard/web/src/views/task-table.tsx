// Tasks as rows: columns to choose, to sort what is on the page by, and a box to tick.
import type { ComponentChildren } from 'preact';
import type { Task, TaskError } from '../api/types';
import { type Verb, VERBS, verbsFor } from '../bulk';
import { goWith, Link, searchLink, taskLink, usePlace } from '../router';
import { writeTerm } from '../search';
import { Button, shortId, Status, When } from '../ui/basics';
import { duration } from '../words';

type Column = {
  name: string;
  title: string;
  show: (task: Task, now: number) => ComponentChildren;
  key: (task: Task) => string | number;
  isExtra?: boolean;
  class?: string;
};

const errorOf = (task: Task): string => (task.error as TaskError | null)?.message ?? '';
const at = (text: string | null): number => (text ? Date.parse(text) : 0);

export const COLUMNS: Column[] = [
  { name: 'status', title: 'State', show: (task) => <Status of={task.status} />, key: (task) => task.status },
  {
    name: 'id',
    title: 'Task',
    show: (task) => <Link to={taskLink(task.task_id)} class="id" label={`Task ${task.task_id}`}>{shortId(task.task_id)}</Link>,
    key: (task) => task.task_id,
  },
  { name: 'type', title: 'Type', show: (task) => <Link to={searchLink(writeTerm({ name: 'type', value: task.task_type }))}>{task.task_type}</Link>, key: (task) => task.task_type },
  { name: 'priority', title: 'Priority', show: (task) => task.priority, key: (task) => task.priority },
  { name: 'created', title: 'Created', show: (task, now) => <When at={task.created_at} now={now} />, key: (task) => at(task.created_at), class: 'nowrap' },
  { name: 'ended', title: 'Ended', show: (task, now) => <When at={task.completed_at} now={now} />, key: (task) => at(task.completed_at), isExtra: true, class: 'nowrap' },
  { name: 'ran', title: 'Ran', show: (task) => duration(ranSeconds(task)), key: (task) => ranSeconds(task) ?? -1, class: 'nowrap number' },
  { name: 'attempt', title: 'Attempts', show: attempts, key: triesOf, class: 'number nowrap' },
  { name: 'worker', title: 'Worker', show: (task) => task.assigned_worker_id ?? '', key: (task) => task.assigned_worker_id ?? '', isExtra: true, class: 'cut' },
  { name: 'tags', title: 'Tags', show: (task) => <Tags task={task} />, key: (task) => JSON.stringify(task.tags) },
  { name: 'error', title: 'Error', show: (task) => <LastError task={task} />, key: errorOf, class: 'grow cut' },
  { name: 'client', title: 'Client', show: (task) => task.client_id, key: (task) => task.client_id, isExtra: true },
];

/** Of how many: the first, and as many retries as it may have. What a worker lost costs none of them. */
export function attempts(task: Task): string {
  return `${triesOf(task)} / ${task.max_retries + 1}${task.losses ? ` + ${task.losses} lost` : ''}`;
}

/** Of the present life. An execution that failed, or was lost, is counted already where the task waits again. */
function triesOf(task: Task): number {
  const isCounted =
    !task.started_at ||
    task.status === 'queued' ||
    task.reason === 'poison' ||
    (task.status === 'cancelled' && task.error_count > 0);
  return task.retry_count + (isCounted ? 0 : 1);
}

/** The message, and of how many it is the last. */
export function LastError({ task, otherwise = '' }: { task: Task; otherwise?: string }) {
  return (
    <>
      {task.error_count > 1 && <span class="faint">last of {task.error_count}: </span>}
      {errorOf(task) || otherwise}
    </>
  );
}

function ranSeconds(task: Task): number | undefined {
  if (!task.started_at || !task.completed_at) return undefined;
  return Math.max(0, at(task.completed_at) - at(task.started_at)) / 1_000;
}

export function chosenColumns(text: string | null): string[] {
  return text ? text.split(',') : COLUMNS.filter((column) => !column.isExtra).map((column) => column.name);
}

function Tags({ task }: { task: Task }) {
  return (
    <span class="tags">
      {Object.entries(task.tags as Record<string, string>).map(([name, value]) => (
        <Link key={name} to={searchLink(writeTerm({ name: `tag.${name}`, value }))} class="tag">
          {name}: {value}
        </Link>
      ))}
    </span>
  );
}

type TableProps = {
  tasks: Task[];
  now: number;
  picked: Set<string>;
  onPick: (picked: Set<string>) => void;
  onAct: ((verb: Verb, task: Task) => void) | undefined;
};

export function TaskTable({ tasks, now, picked, onPick, onAct }: TableProps) {
  const { params } = usePlace();
  const names = chosenColumns(params.get('columns'));
  const columns = COLUMNS.filter((column) => names.includes(column.name));
  const sort = params.get('sort') ?? '';
  const rows = sorted(tasks, sort);
  const all = tasks.length > 0 && tasks.every((task) => picked.has(task.task_id));
  const flip = (id: string) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    onPick(next);
  };
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col" class="tick">
              <input
                type="checkbox"
                aria-label="Select this page"
                checked={all}
                onChange={() => onPick(new Set(all ? [] : tasks.map((task) => task.task_id)))}
              />
            </th>
            {columns.map((column) => (
              <Head key={column.name} column={column} sort={sort} />
            ))}
            {onAct && <th scope="col">Do</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((task) => (
            <tr key={task.task_id} class={picked.has(task.task_id) ? 'picked' : ''}>
              <td class="tick">
                <input type="checkbox" aria-label={`Select ${task.task_id}`} checked={picked.has(task.task_id)} onChange={() => flip(task.task_id)} />
              </td>
              {columns.map((column) => (
                <td key={column.name} class={column.class}>
                  {column.show(task, now)}
                </td>
              ))}
              {onAct && (
                <td class="nowrap row-verbs">
                  {verbsFor(task.status).map((verb) => (
                    <Button key={verb} kind="quiet" label={`${VERBS[verb].does} ${task.task_id}`} onClick={() => onAct(verb, task)}>
                      {VERBS[verb].does}
                    </Button>
                  ))}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head({ column, sort }: { column: Column; sort: string }) {
  const direction = sort === column.name ? 'ascending' : sort === `-${column.name}` ? 'descending' : 'none';
  const next = { none: column.name, ascending: `-${column.name}`, descending: '' }[direction];
  return (
    <th scope="col" aria-sort={direction} class={column.class?.replace(/grow|cut/g, '')}>
      <button type="button" title="Sort this page" onClick={() => goWith({ sort: next }, true)}>
        {column.title}
        <span aria-hidden="true" class="arrow">
          {{ none: '', ascending: '↑', descending: '↓' }[direction]}
        </span>
      </button>
    </th>
  );
}

function sorted(tasks: Task[], sort: string): Task[] {
  const column = COLUMNS.find((each) => each.name === sort.replace(/^-/, ''));
  if (!column) return tasks;
  const sign = sort.startsWith('-') ? -1 : 1;
  return [...tasks].sort((one, other) => {
    const [a, b] = [column.key(one), column.key(other)];
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  });
}
