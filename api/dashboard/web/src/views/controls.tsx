// Pausing, limiting, and who did so.
import { useState } from 'preact/hooks';
import { call, get } from '../api/client';
import type { Audit, Limit, Limits } from '../api/types';
import { useAction, useFresh, useNow } from '../hooks';
import { mayAdminister, needs, session } from '../session';
import { useStore } from '../store';
import { Badge, Button, Card, Empty, Field, Problem, Text, When } from '../ui/basics';
import { refreshPauses } from '../pauses';

export function Controls() {
  const inForce = useFresh(() => get<Limits>('/api/v1/queue/limits'), [], { minMs: 2_000, everyMs: 5_000 });
  const audit = useFresh(() => get<Audit>('/api/v1/audit', { limit: 50 }), [], { minMs: 5_000, everyMs: 10_000 });
  const may = mayAdminister(useStore(session));
  const changed = () => {
    inForce.reload();
    audit.reload();
    refreshPauses();
  };
  return (
    <>
      <header class="view-head">
        <h1>Controls</h1>
      </header>
      {!may && <p class="notice">You can look; changing anything takes an admin key.</p>}
      <Problem error={inForce.error} />
      <Card title="In force">
        <InForce limits={inForce.data?.limits} may={may} changed={changed} />
      </Card>
      <div class="columns">
        <PauseForm may={may} changed={changed} />
        <LimitForm may={may} changed={changed} />
      </div>
      <AuditList audit={audit.data} />
    </>
  );
}

const scopeName = (limit: Limit): string => limit.task_type ?? 'the whole queue';

function InForce({ limits, may, changed }: { limits: Limit[] | undefined; may: boolean; changed: () => void }) {
  if (!limits) return null;
  if (!limits.length) {
    return (
      <Empty title="Nothing is paused or limited">
        <p>Work goes out as fast as workers ask for it.</p>
      </Empty>
    );
  }
  return (
    <ul class="in-force">
      {limits.map((limit) => (
        <InForceRow key={limit.task_type ?? ''} limit={limit} may={may} changed={changed} />
      ))}
    </ul>
  );
}

function InForceRow({ limit, may, changed }: { limit: Limit; may: boolean; changed: () => void }) {
  const now = useNow();
  const scope = limit.task_type ? { task_type: limit.task_type } : {};
  const resume = useAction(async () => {
    await call('POST', '/api/v1/queue/resume', scope);
    changed();
  });
  const lift = useAction(async () => {
    await call('PUT', '/api/v1/queue/limits', scope);
    changed();
  });
  const isLimited = limit.tasks_per_second > 0 || limit.max_executing !== null;
  return (
    <li>
      <b class="scope">{scopeName(limit)}</b>
      <span class="in-force-words">
        {limit.paused && (
          <>
            <Badge tone="bad">paused</Badge> {limit.reason && <q>{limit.reason}</q>} {limit.paused_by && <span class="faint">by {limit.paused_by}</span>}{' '}
            {limit.resume_at && <span class="faint">resumes <When at={limit.resume_at} now={now} /></span>}
          </>
        )}
        {limit.tasks_per_second > 0 && <Badge>{limit.tasks_per_second} a second</Badge>}
        {limit.max_executing !== null && <Badge>{limit.max_executing} at once</Badge>}
      </span>
      <span class="group">
        {limit.paused && (
          <Button kind="main" disabled={!may || resume.isBusy} title={may ? undefined : needs('admin')} onClick={() => void resume.run()}>
            Resume
          </Button>
        )}
        {isLimited && (
          <Button disabled={!may || lift.isBusy} title={may ? undefined : needs('admin')} onClick={() => void lift.run()}>
            Lift limits
          </Button>
        )}
      </span>
      <Problem error={resume.error ?? lift.error} />
    </li>
  );
}

function PauseForm({ may, changed }: { may: boolean; changed: () => void }) {
  const [type, setType] = useState('');
  const [reason, setReason] = useState('');
  const [minutes, setMinutes] = useState('');
  const pause = useAction(async () => {
    const resume_at = minutes ? new Date(Date.now() + Number(minutes) * 60_000).toISOString() : undefined;
    await call('POST', '/api/v1/queue/pause', { ...(type ? { task_type: type } : {}), ...(reason ? { reason } : {}), ...(resume_at ? { resume_at } : {}) });
    setReason('');
    setMinutes('');
    changed();
  });
  return (
    <Card title="Pause">
      <form class="form" onSubmit={(event) => (event.preventDefault(), void pause.run())}>
        <p class="hint">Nothing more is handed out; what runs may finish, and submitting goes on.</p>
        <Field label="Task type" hint="Empty pauses the whole queue.">
          <Text value={type} onValue={setType} placeholder="the whole queue" disabled={!may} />
        </Field>
        <Field label="Reason" hint="Shown on the dashboard and in answers; may be empty.">
          <Text value={reason} onValue={setReason} maxLength={200} disabled={!may} />
        </Field>
        <Field label="Resume by itself after" hint="Minutes; empty waits for a person.">
          <Text type="number" min="0.1" step="any" value={minutes} onValue={setMinutes} disabled={!may} />
        </Field>
        <Problem error={pause.error} />
        <Button type="submit" kind="danger" disabled={!may || pause.isBusy} title={may ? undefined : needs('admin')}>
          {type ? `Pause ${type}` : 'Pause the whole queue'}
        </Button>
      </form>
    </Card>
  );
}

function LimitForm({ may, changed }: { may: boolean; changed: () => void }) {
  const [type, setType] = useState('');
  const [rate, setRate] = useState('');
  const [most, setMost] = useState('');
  const limit = useAction(async () => {
    await call('PUT', '/api/v1/queue/limits', {
      ...(type ? { task_type: type } : {}),
      tasks_per_second: Number(rate || 0),
      ...(most ? { max_executing: Number(most) } : {}),
    });
    changed();
  });
  return (
    <Card title="Limit">
      <form class="form" onSubmit={(event) => (event.preventDefault(), void limit.run())}>
        <p class="hint">Sets both at once; an empty one is no limit.</p>
        <Field label="Task type" hint="Empty limits the whole queue.">
          <Text value={type} onValue={setType} placeholder="the whole queue" disabled={!may} />
        </Field>
        <Field label="Tasks a second">
          <Text type="number" min="0" step="any" value={rate} onValue={setRate} placeholder="any" disabled={!may} />
        </Field>
        <Field label="Most at once" hint="Assigned or executing.">
          <Text type="number" min="0" step="1" value={most} onValue={setMost} placeholder="any" disabled={!may} />
        </Field>
        <Problem error={limit.error} />
        <Button type="submit" kind="main" disabled={!may || limit.isBusy} title={may ? undefined : needs('admin')}>
          {type ? `Limit ${type}` : 'Limit the whole queue'}
        </Button>
      </form>
    </Card>
  );
}

function AuditList({ audit }: { audit: Audit | undefined }) {
  const now = useNow();
  if (!audit) return null;
  return (
    <Card title="Who did what">
      {audit.notes.length === 0 ? (
        <Empty title="No actions yet">
          <p>Pauses, limits, drains, clean-ups, purges and replays will be listed here, with whose key it was.</p>
        </Empty>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Who</th>
                <th scope="col">Did</th>
                <th scope="col">To</th>
                <th scope="col">In words</th>
              </tr>
            </thead>
            <tbody>
              {audit.notes.map((note, place) => (
                <tr key={`${note.at}${place}`}>
                  <td class="nowrap"><When at={note.at} now={now} /></td>
                  <td>{note.by}</td>
                  <td>{note.action}</td>
                  <td class="cut">{note.target || 'the whole queue'}</td>
                  <td class="grow cut">{note.details}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
