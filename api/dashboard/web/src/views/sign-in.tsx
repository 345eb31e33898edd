// Asking for a key. It stays in this browser and goes nowhere but to the service that served this page.
import { useState } from 'preact/hooks';
import { forgetKey, isLockedOut, keepKey } from '../api/client';
import { useAction } from '../hooks';
import { readSession } from '../session';
import { Button, Field, Problem, Text } from '../ui/basics';

export function SignIn() {
  const [key, setKey] = useState('');
  const [isRemembered, setRemembered] = useState(false);
  const enter = useAction(async () => {
    keepKey(key.trim(), isRemembered);
    try {
      await readSession();
      isLockedOut.set(false);
    } catch (error) {
      forgetKey();
      throw error;
    }
  });
  return (
    <main class="sign-in">
      <form class="card form" onSubmit={(event) => (event.preventDefault(), void enter.run())}>
        <h1>
          <Mark /> TideQ
        </h1>
        <p>This queue asks for a key. A viewer’s key is enough to look; an admin’s may do everything.</p>
        <Field label="Access key" hint="It looks like tq_… and was shown once, when it was made.">
          <Text type="password" value={key} onValue={setKey} autoComplete="current-password" required />
        </Field>
        <label class="inline">
          <input type="checkbox" checked={isRemembered} onChange={() => setRemembered(!isRemembered)} /> remember it in this browser
        </label>
        <Problem error={enter.error} />
        <Button type="submit" kind="main" disabled={enter.isBusy}>
          Sign in
        </Button>
        <p class="hint">
          An operator of the service makes keys with <code>tideq keys create NAME --role viewer</code>.
        </p>
      </form>
    </main>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M4 13c4 0 4-4 8-4s4 4 8 4 4-4 8-4M4 23c4 0 4-4 8-4s4 4 8 4 4-4 8-4" />
    </svg>
  );
}
