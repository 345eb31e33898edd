// Finding tasks, and doing something to many of them. All of it is in the address, so that it can be sent to others.
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, type Query } from '../api/client';
import type { Stats, Task, Tasks as TaskPage, Workers } from '../api/types';
import { type Verb, VERBS } from '../bulk';
import { useFresh, useNow } from '../hooks';
import { go, goWith, taskLink, usePlace } from '../router';
import { parseSearch, QUALIFIERS, TASK_ID, termOf, toQuery, withTerm, writeSearch } from '../search';
import { mayProduce, session } from '../session';
import { useStore } from '../store';
import { Button, Card, Empty, Problem } from '../ui/basics';
import { count, LIVE, OTHER_TYPES, plain, TERMINAL } from '../words';
import { BulkDialog, type Scope } from './bulk-dialog';
import { chosenColumns, COLUMNS, TaskTable } from './task-table';

export function Tasks() {
  const { params } = usePlace();
  const text = params.get('q') ?? '';
  const cursor = params.get('cursor') ?? '';
  const { query, problem } = toQuery(text, Date.now());
  const page = useFresh(
    () => (problem ? Promise.resolve(undefined) : get<TaskPage>('/api/v1/tasks', { ...query, limit: 50, cursor, count: true })),
    [text, cursor],
    { minMs: 1_000, everyMs: 60_000 },
  );
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<{ verb: Verb; scope: Scope }>();
  useEffect(() => setPicked(new Set()), [text, cursor]);
  const who = useStore(session);

  return (
    <>
      <header class="view-head">
        <h1>Tasks</h1>
      </header>
      <Search text={text} listed={page.data?.tasks ?? []} />
      {problem && <p class="problem">{problem}</p>}
      <Problem error={page.error} />
      <Card class="list">
        {page.data && (
          <Toolbar
            page={page.data}
            picked={picked}
            mayAct={mayProduce(who)}
            onAct={(verb, isAll) => setBulk({ verb, scope: scopeOf(isAll, picked, query, page.data) })}
          />
        )}
        <List
          page={page.data}
          picked={picked}
          onPick={setPicked}
          onAct={mayProduce(who) ? (verb, task) => setBulk({ verb, scope: { ids: [task.task_id], count: 1, isExact: true } }) : undefined}
          text={text}
        />
        {page.data && <Pager next={page.data.next_cursor} cursor={cursor} />}
      </Card>
      {bulk && (
        <BulkDialog
          verb={bulk.verb}
          scope={bulk.scope}
          onClose={() => {
            setBulk(undefined);
            setPicked(new Set());
            page.reload();
          }}
        />
      )}
    </>
  );
}

function scopeOf(isAll: boolean, picked: Set<string>, query: Query, page: TaskPage | undefined): Scope {
  if (!isAll) return { ids: [...picked], count: picked.size, isExact: true };
  return { query, count: page?.total ?? 0, isExact: page?.total_is_exact ?? false };
}

/** Types that have tasks or had some, that workers do, or that the page shows, whichever is chosen among them. */
function useTypes(listed: Task[], chosen: string): string[] {
  const stats = useFresh(() => get<Stats>('/api/v1/queue/stats'), [], { minMs: 5_000, everyMs: 30_000 });
  const fleet = useFresh(() => get<Workers>('/api/v1/workers'), [], { minMs: 5_000, everyMs: 30_000 });
  const known = [
    ...Object.keys(stats.data?.queue.by_type ?? {}),
    ...Object.keys(stats.data?.queue.by_type_and_state ?? {}).filter((type) => type !== OTHER_TYPES),
    ...(fleet.data?.workers ?? []).flatMap((worker) => worker.task_types ?? []),
    ...listed.map((task) => task.task_type),
  ];
  return [...new Set([...known, chosen])].filter(Boolean).sort();
}

function Search({ text, listed }: { text: string; listed: Task[] }) {
  const type = termOf(text, 'type');
  const types = useTypes(listed, type);
  const [typed, setTyped] = useState(text);
  const [showsHelp, setShowsHelp] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setTyped(text), [text]);
  const search = (wanted: string) => {
    const word = wanted.trim();
    if (TASK_ID.test(word)) go(taskLink(word));
    else goWith({ q: writeSearch(parseSearch(word)), cursor: '' });
  };
  const submitted = (event: Event) => {
    event.preventDefault();
    search(typed);
  };
  const choose = (name: string, value: string) => goWith({ q: withTerm(text, name, value), cursor: '' });
  const states = termOf(text, 'status').split(',').filter(Boolean);
  const flip = (state: string) =>
    choose('status', (states.includes(state) ? states.filter((each) => each !== state) : [...states, state]).join(','));
  return (
    <search>
      <form class="search" role="search" onSubmit={submitted}>
        <input
          ref={input}
          id="task-search"
          type="search"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          placeholder={'status:failed type:resize tag.customer:42 error:"timed out", or a task’s id'}
          aria-label="Search tasks"
          autoComplete="off"
          spellcheck={false}
        />
        <Button type="submit" kind="main">
          Search
        </Button>
        <Button kind="quiet" onClick={() => setShowsHelp(!showsHelp)} pressed={showsHelp}>
          What can I ask?
        </Button>
      </form>
      {showsHelp && (
        <dl class="qualifiers">
          {Object.entries(QUALIFIERS).map(([name, words]) => (
            <div key={name}>
              <dt>
                <code>{name}:</code>
              </dt>
              <dd>{words}</dd>
            </div>
          ))}
        </dl>
      )}
      <div class="chips" role="group" aria-label="States">
        <select class="type-choice" aria-label="Task type" value={type} onChange={(event) => choose('type', event.currentTarget.value)}>
          <option value="">any type</option>
          {types.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
        {[...LIVE, ...TERMINAL].map((state) => (
          <button key={state} type="button" class={`chip ${state}`} aria-pressed={states.includes(state)} onClick={() => flip(state)}>
            {plain(state)}
          </button>
        ))}
        {parseSearch(text)
          .filter((term) => term.name !== 'status')
          .map((term) => (
            <button
              key={term.name + term.value}
              type="button"
              class="chip other"
              aria-pressed="true"
              title="Remove this filter"
              onClick={() => choose(term.name, '')}
            >
              {term.name}: {term.value} <span aria-hidden="true">×</span>
            </button>
          ))}
        {text && (
          <Button kind="quiet" onClick={() => goWith({ q: '', cursor: '' })}>
            Clear
          </Button>
        )}
      </div>
    </search>
  );
}

type ToolbarProps = { page: TaskPage; picked: Set<string>; mayAct: boolean; onAct: (verb: Verb, isAll: boolean) => void };

function Toolbar({ page, picked, mayAct, onAct }: ToolbarProps) {
  const [isAll, setAll] = useState(false);
  const total = `${page.total_is_exact ? '' : 'more than '}${count(page.total ?? page.tasks.length)}`;
  const isActive = isAll || picked.size > 0;
  return (
    <div class="toolbar">
      <span class="toolbar-words">
        <b>{total}</b> {page.total === 1 ? 'task matches' : 'tasks match'}
        {picked.size > 0 && !isAll && <>, <b>{count(picked.size)}</b> selected</>}
      </span>
      {mayAct && page.tasks.length > 0 && (
        <>
          <label class="all-matching">
            <input type="checkbox" checked={isAll} onChange={() => setAll(!isAll)} /> all {total} matching
          </label>
          <span class="group" role="group" aria-label="Do to the selected tasks">
            {(Object.keys(VERBS) as Verb[]).map((verb) => (
              <Button key={verb} kind={verb === 'purge' ? 'danger' : 'plain'} disabled={!isActive} onClick={() => onAct(verb, isAll)}>
                {VERBS[verb].does}
                {isActive ? ` ${isAll ? total : count(picked.size)}` : ''}
              </Button>
            ))}
          </span>
        </>
      )}
      <ColumnChoice />
    </div>
  );
}

function ColumnChoice() {
  const { params } = usePlace();
  const chosen = chosenColumns(params.get('columns'));
  const flip = (name: string) => {
    const next = COLUMNS.filter((column) => (column.name === name) !== chosen.includes(column.name)).map((column) => column.name);
    goWith({ columns: next.join(',') }, true);
  };
  return (
    <details class="menu">
      <summary>Columns</summary>
      <div class="menu-body">
        {COLUMNS.map((column) => (
          <label key={column.name}>
            <input type="checkbox" checked={chosen.includes(column.name)} onChange={() => flip(column.name)} /> {column.title}
          </label>
        ))}
      </div>
    </details>
  );
}

type ListProps = {
  page: TaskPage | undefined;
  picked: Set<string>;
  onPick: (picked: Set<string>) => void;
  onAct: ((verb: Verb, task: Task) => void) | undefined;
  text: string;
};

function List({ page, picked, onPick, onAct, text }: ListProps) {
  const now = useNow();
  if (!page) return <div class="list-waiting" aria-busy="true" />;
  if (!page.tasks.length) {
    return text ? (
      <Empty title="Nothing matches">
        <p>Take a filter away, or look at all tasks. A task you have just submitted appears here within a second.</p>
      </Empty>
    ) : (
      <Empty title="No task yet">
        <p>
          Submit one with the form, or from a terminal:
        </p>
        <pre>{`curl ${location.origin}/api/v1/tasks -d '{"task_type": "hello", "parameters": {"name": "tide"}}'`}</pre>
      </Empty>
    );
  }
  return <TaskTable tasks={page.tasks} now={now} picked={picked} onPick={onPick} onAct={onAct} />;
}

function Pager({ next, cursor }: { next: string | null; cursor: string }) {
  if (!next && !cursor) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <Button disabled={!cursor} onClick={() => goWith({ cursor: '' })}>
        Newest
      </Button>
      <Button disabled={!cursor} onClick={() => history.back()}>
        Back
      </Button>
      <Button disabled={!next} onClick={() => goWith({ cursor: next ?? '' })}>
        Older
      </Button>
    </nav>
  );
}
