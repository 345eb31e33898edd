// Dead letters: how tasks die first, then which ones, then sending them back.
import { useState } from 'preact/hooks';
import { get } from '../api/client';
import type { DeadLetters as DeadPage, Pattern } from '../api/types';
import { useFresh, useNow } from '../hooks';
import { goWith, Link, taskLink, usePlace } from '../router';
import { mayProduce, needs, session } from '../session';
import { useStore } from '../store';
import { Badge, Button, Card, Empty, Problem, shortId, When } from '../ui/basics';
import { count, plain } from '../words';
import { ReplayDialog, type ReplayFilter } from './replay-dialog';
import { attempts, LastError } from './task-table';

export function DeadLetters() {
  const { params } = usePlace();
  const pattern = params.get('pattern') ?? '';
  const found = useFresh(() => get<{ patterns: Pattern[] }>('/api/v1/dlq/patterns'), [], { minMs: 2_000, everyMs: 10_000 });
  const [replay, setReplay] = useState<ReplayFilter>();
  const who = useStore(session);
  const patterns = found.data?.patterns ?? [];
  const total = patterns.reduce((sum, each) => sum + each.count, 0);
  return (
    <>
      <header class="view-head">
        <h1>Dead letters</h1>
        {total > 0 && (
          <Button disabled={!mayProduce(who)} title={mayProduce(who) ? undefined : needs('producer')} onClick={() => setReplay({})}>
            Replay by filter…
          </Button>
        )}
      </header>
      <Problem error={found.error} />
      {found.data && patterns.length === 0 && (
        <Empty title="No dead letters">
          <p>A task that uses up its retries is kept here, with all others that died the same way, until an operator looks.</p>
        </Empty>
      )}
      {patterns.length > 0 && (
        <p class="lead">
          <b>{count(total)}</b> tasks were given up, in <b>{count(patterns.length)}</b> different ways. Mend the cause, then replay.
        </p>
      )}
      <div class="patterns">
        {patterns.map((each) => (
          <PatternCard key={each.pattern} pattern={each} isOpen={each.pattern === pattern} onReplay={() => setReplay({ pattern: each.pattern, task_type: each.task_type })} />
        ))}
      </div>
      {replay && (
        <ReplayDialog
          filter={replay}
          types={[...new Set(patterns.map((each) => each.task_type))]}
          reasons={[...new Set(patterns.map((each) => each.reason))]}
          onClose={() => {
            setReplay(undefined);
            found.reload();
          }}
        />
      )}
    </>
  );
}

type PatternCardProps = { pattern: Pattern; isOpen: boolean; onReplay: () => void };

function PatternCard({ pattern, isOpen, onReplay }: PatternCardProps) {
  const now = useNow();
  const who = useStore(session);
  return (
    <Card class="pattern">
      <div class="pattern-head">
        <span class="pattern-count">{count(pattern.count)}</span>
        <div class="pattern-words">
          <p class="pattern-message">{pattern.message || 'no message'}</p>
          <p class="faint">
            {pattern.task_type} · {plain(pattern.reason)} · first <When at={pattern.first_seen} now={now} /> · last <When at={pattern.last_seen} now={now} />
          </p>
        </div>
        {pattern.is_new && <Badge tone="bad">new</Badge>}
        <Badge tone={pattern.retriable_count ? 'good' : 'calm'}>{pattern.retriable_count === pattern.count ? 'retriable' : `${count(pattern.retriable_count)} retriable`}</Badge>
        <div class="group">
          <Button onClick={() => goWith({ pattern: isOpen ? '' : pattern.pattern, cursor: '' })} pressed={isOpen}>
            {isOpen ? 'Hide tasks' : 'Tasks'}
          </Button>
          <Button kind="main" disabled={!mayProduce(who)} title={mayProduce(who) ? undefined : needs('producer')} onClick={onReplay}>
            Replay…
          </Button>
        </div>
      </div>
      {isOpen && <Dead pattern={pattern.pattern} />}
    </Card>
  );
}

function Dead({ pattern }: { pattern: string }) {
  const { params } = usePlace();
  const cursor = params.get('cursor') ?? '';
  const now = useNow();
  const { data, error } = useFresh(() => get<DeadPage>('/api/v1/dlq', { pattern, limit: 20, cursor }), [pattern, cursor], { minMs: 2_000 });
  return (
    <div class="scroll">
      <Problem error={error} />
      <table>
        <thead>
          <tr>
            <th scope="col">Task</th>
            <th scope="col">Died</th>
            <th scope="col" class="number">Attempts</th>
            <th scope="col">Error</th>
          </tr>
        </thead>
        <tbody>
          {data?.tasks.map((task) => (
            <tr key={task.task_id}>
              <td><Link to={taskLink(task.task_id)} class="id">{shortId(task.task_id)}</Link></td>
              <td class="nowrap"><When at={task.died_at} now={now} /></td>
              <td class="number nowrap">{attempts(task)}</td>
              <td class="grow cut"><LastError task={task} otherwise={task.message} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {data?.next_cursor && <Button onClick={() => goWith({ cursor: data.next_cursor ?? '' })}>Older</Button>}
    </div>
  );
}
