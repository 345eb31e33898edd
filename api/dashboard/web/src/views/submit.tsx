// Handing in a task by hand, from scratch or like another one. Parameters are sent as they are typed.
import { useEffect, useState } from 'preact/hooks';
import { callText, taskPath } from '../api/client';
import { pretty, rawMembers } from '../api/json';
import type { Task } from '../api/types';
import { useAction } from '../hooks';
import { Link, taskLink, usePlace } from '../router';
import { mayProduce, needs, session } from '../session';
import { useStore } from '../store';
import { Button, Card, Field, Problem, Text } from '../ui/basics';
import { Choice } from './replay-dialog';

type Form = Record<'type' | 'parameters' | 'priority' | 'delay' | 'retries' | 'timeout' | 'needs' | 'tags' | 'key', string>;

const NOTHING: Form = { type: '', parameters: '{}', priority: '', delay: '', retries: '', timeout: '', needs: '', tags: '', key: '' };

export function Submit() {
  const like = usePlace().params.get('like') ?? '';
  const who = useStore(session);
  const may = mayProduce(who);
  const [form, setForm] = useState<Form>(NOTHING);
  const [made, setMade] = useState('');
  const set = (name: keyof Form) => (value: string) => setForm((before) => ({ ...before, [name]: value }));
  const copying = useAction(async () => setForm(await formLike(like)));
  useEffect(() => {
    if (like) void copying.run();
  }, [like]);
  const problem = problemIn(form.parameters);
  const submit = useAction(async () => {
    const answer = await callText('POST', '/api/v1/tasks', bodyOf(form));
    setMade((JSON.parse(answer) as { task_id: string }).task_id);
  });
  return (
    <>
      <header class="view-head">
        <h1>{like ? 'Submit one like it' : 'Submit a task'}</h1>
      </header>
      {!may && <p class="notice">{needs('producer')}.</p>}
      <Problem error={copying.error} />
      <Card>
        <form class="form wide-form" onSubmit={(event) => (event.preventDefault(), void submit.run())}>
          <Field label="Task type" hint="What kind of work it is; a worker must handle it.">
            <Text value={form.type} onValue={set('type')} required pattern="[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,63}" placeholder="resize" disabled={!may} />
          </Field>
          <Field label="Parameters" hint={problem || 'A JSON object, sent exactly as it is written here.'}>
            <textarea class={problem ? 'wrong' : ''} rows={8} spellcheck={false} value={form.parameters} disabled={!may} onInput={(event) => set('parameters')(event.currentTarget.value)} />
          </Field>
          <div class="form-row">
            <Choice label="Priority" none={`as usual (${who?.default_priority ?? 'medium'})`} value={form.priority} values={who?.priorities ?? []} onValue={set('priority')} />
            <Field label="Not before" hint="Seconds from now.">
              <Text type="number" min="0" step="any" value={form.delay} onValue={set('delay')} placeholder="at once" disabled={!may} />
            </Field>
            <Field label="Retries">
              <Text type="number" min="0" step="1" value={form.retries} onValue={set('retries')} placeholder="as usual" disabled={!may} />
            </Field>
            <Field label="May run for" hint="Seconds.">
              <Text type="number" min="1" step="any" value={form.timeout} onValue={set('timeout')} placeholder="as usual" disabled={!may} />
            </Field>
          </div>
          <div class="form-row">
            <Field label="Needs" hint="Capabilities, with commas.">
              <Text value={form.needs} onValue={set('needs')} placeholder="nothing special" disabled={!may} />
            </Field>
            <Field label="Tags" hint="customer=42, with commas.">
              <Text value={form.tags} onValue={set('tags')} placeholder="none" disabled={!may} />
            </Field>
            <Field label="Idempotency key" hint="The same key again is the same task.">
              <Text value={form.key} onValue={set('key')} placeholder="none" disabled={!may} />
            </Field>
          </div>
          <Problem error={submit.error} />
          <div class="actions start">
            <Button type="submit" kind="main" disabled={!may || Boolean(problem) || submit.isBusy}>
              Submit
            </Button>
            {made && (
              <span role="status">
                Submitted: <Link to={taskLink(made)}>{made}</Link>
              </span>
            )}
          </div>
        </form>
      </Card>
    </>
  );
}

async function formLike(id: string): Promise<Form> {
  const text = await callText('GET', taskPath(id));
  const task = JSON.parse(text) as Task;
  return {
    type: task.task_type,
    parameters: pretty(rawMembers(text).get('parameters') ?? '{}').map((piece) => piece.text).join(''),
    priority: task.priority,
    delay: '',
    retries: String(task.max_retries),
    timeout: String(task.timeout_seconds),
    needs: task.required_capabilities.join(', '),
    tags: Object.entries(task.tags as Record<string, string>).map(([name, value]) => `${name}=${value}`).join(', '),
    key: '',
  };
}

function problemIn(parameters: string): string {
  try {
    const value: unknown = JSON.parse(parameters);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? '' : 'Parameters must be an object: { … }';
  } catch (error) {
    return error instanceof Error ? error.message : 'This is no JSON.';
  }
}

/** Everything else as JSON, the parameters as text beside it: numbers in them stay as they were typed. */
function bodyOf(form: Form): string {
  const list = (text: string) => text.split(',').map((part) => part.trim()).filter(Boolean);
  const rest = {
    task_type: form.type,
    ...(form.priority && { priority: form.priority }),
    ...(form.delay && { delay_seconds: Number(form.delay) }),
    ...(form.retries && { max_retries: Number(form.retries) }),
    ...(form.timeout && { timeout_seconds: Number(form.timeout) }),
    ...(form.needs && { required_capabilities: list(form.needs) }),
    ...(form.tags && { tags: Object.fromEntries(list(form.tags).map(pairOf)) }),
    ...(form.key && { idempotency_key: form.key }),
  };
  return `${JSON.stringify(rest).slice(0, -1)},"parameters":${form.parameters}}`;
}

function pairOf(text: string): [string, string] {
  const at = text.indexOf('=');
  return at < 0 ? [text, ''] : [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}
