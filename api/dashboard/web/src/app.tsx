// The frame around every view: where one can go, what is paused, who is signed in, which keys do what.
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { forgetKey, isLockedOut } from './api/client';
import { feed, liveState } from './api/live';
import { asError } from './hooks';
import { pauses, watchPauses } from './pauses';
import { go, Link, usePlace } from './router';
import { readSession, session } from './session';
import { useStore } from './store';
import { THEMES, theme } from './theme';
import { Button } from './ui/basics';
import { Dialog } from './ui/dialog';
import { Controls } from './views/controls';
import { DeadLetters } from './views/dead-letters';
import { Overview } from './views/overview';
import { Mark, SignIn } from './views/sign-in';
import { Submit } from './views/submit';
import { TaskView } from './views/task';
import { Tasks } from './views/tasks';
import { Workers } from './views/workers';
import { zone } from './words';

type Entry = { path: string; name: string; key: string };

const ENTRIES: Entry[] = [
  { path: '/ui/', name: 'Overview', key: 'o' },
  { path: '/ui/tasks', name: 'Tasks', key: 't' },
  { path: '/ui/workers', name: 'Workers', key: 'w' },
  { path: '/ui/dead-letters', name: 'Dead letters', key: 'd' },
  { path: '/ui/controls', name: 'Controls', key: 'c' },
  { path: '/ui/submit', name: 'Submit', key: 's' },
];

export function App() {
  const who = useStore(session);
  const isLocked = useStore(isLockedOut);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    if (who || isLocked) return;
    const ask = () => readSession().then(() => setProblem(''), (error: unknown) => setProblem(asError(error).message));
    void ask();
    const timer = setInterval(() => void ask(), 3_000);
    return () => clearInterval(timer);
  }, [who, isLocked]);
  useEffect(() => {
    if (who) feed.begin();
  }, [Boolean(who)]);
  if (isLocked) return <SignIn />;
  if (!who) return <p class="starting">{problem}</p>;
  return <Frame />;
}

function Frame() {
  const { path } = usePlace();
  const [showsHelp, setShowsHelp] = useState(false);
  useShortcuts(() => setShowsHelp(true));
  useEffect(watchPauses, []);
  useEffect(() => {
    document.title = `${nameOf(path)} · TideQ`;
  }, [path]);
  return (
    <div class="frame">
      <a class="skip" href="#content">
        To the content
      </a>
      <Side path={path} onHelp={() => setShowsHelp(true)} />
      <main id="content" tabIndex={-1}>
        <PauseBadge />
        <View path={path} />
      </main>
      {showsHelp && <Help onClose={() => setShowsHelp(false)} />}
    </div>
  );
}

function View({ path }: { path: string }) {
  const [, id] = /^\/ui\/tasks\/(.+)$/.exec(path) ?? [];
  if (id) return <TaskView id={decodeURIComponent(id)} key={id} />;
  switch (path.replace(/\/$/, '')) {
    case '/ui/tasks':
      return <Tasks />;
    case '/ui/workers':
      return <Workers />;
    case '/ui/dead-letters':
      return <DeadLetters />;
    case '/ui/controls':
      return <Controls />;
    case '/ui/submit':
      return <Submit />;
    default:
      return <Overview />;
  }
}

const isAt = (entry: Entry, path: string): boolean =>
  entry.path === '/ui/' ? path === '/' || path === '/ui' || path === '/ui/' : path.startsWith(entry.path);

const nameOf = (path: string): string => ENTRIES.find((entry) => isAt(entry, path))?.name ?? 'Overview';

function Side({ path, onHelp }: { path: string; onHelp: () => void }) {
  const who = useStore(session);
  return (
    <header class="side">
      <Link to="/ui/" class="brand" label="TideQ, overview">
        <Mark /> <span>TideQ</span>
      </Link>
      <nav aria-label="Views">
        {ENTRIES.map((entry) => (
          <Link key={entry.path} to={entry.path} class={isAt(entry, path) ? 'here' : ''}>
            {entry.name}
          </Link>
        ))}
      </nav>
      <div class="side-foot">
        <LiveLight />
        <div class="side-buttons">
          <Cycle store={theme} values={THEMES} words={(value) => `${value} theme`} />
          <Cycle store={zone} values={['local', 'utc']} words={(value) => (value === 'utc' ? 'times in UTC' : 'local times')} />
          <Button kind="quiet" onClick={onHelp}>
            keys: ?
          </Button>
          <a class="button quiet" href="/docs">
            API
          </a>
        </div>
        <p class="who">
          {who?.auth_disabled ? 'open on this machine' : `${who?.name} (${who?.role})`}
          {!who?.auth_disabled && (
            <Button kind="quiet" onClick={signOut}>
              Sign out
            </Button>
          )}
        </p>
        <p class="faint version">
          {who?.queue} · {who?.version}
        </p>
      </div>
    </header>
  );
}

function signOut(): void {
  forgetKey();
  session.set(null);
  isLockedOut.set(true);
}

function Cycle({ store, values, words }: { store: typeof theme; values: string[]; words: (value: string) => string }) {
  const value = useStore(store);
  const next = values[(values.indexOf(value) + 1) % values.length] ?? '';
  return (
    <Button kind="quiet" onClick={() => store.set(next)} title={`Change to ${words(next)}`}>
      {words(value)}
    </Button>
  );
}

function LiveLight() {
  const state = useStore(liveState);
  const words = { connecting: 'connecting', live: 'live', polling: 'asking every few seconds', paused: 'paused' }[state];
  return (
    <p class={`live ${state}`} role="status">
      <i /> {words}
    </p>
  );
}

function PauseBadge() {
  const paused = useStore(pauses);
  if (!paused.length) return null;
  const whole = paused.find((limit) => !limit.task_type);
  const names = paused.map((limit) => limit.task_type ?? 'the whole queue').join(', ');
  const reason = (whole ?? paused[0])?.reason;
  return (
    <div class="pause-badge" role="alert">
      <b>{whole ? 'The queue is paused' : `Paused: ${names}`}</b>
      {reason && <q>{reason}</q>}
      <Link to="/ui/controls">Controls</Link>
    </div>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        <div>
          <dt><kbd>/</kbd></dt>
          <dd>search tasks</dd>
        </div>
        {ENTRIES.map((entry) => (
          <div key={entry.key}>
            <dt><kbd>g</kbd> <kbd>{entry.key}</kbd></dt>
            <dd>{entry.name.toLowerCase()}</dd>
          </div>
        ))}
        <div>
          <dt><kbd>?</kbd></dt>
          <dd>this list</dd>
        </div>
      </dl>
      <div class="actions">
        <Button onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}

function useShortcuts(onHelp: () => void): void {
  // As soon as the page is there: a key pressed before the next frame would be lost.
  useLayoutEffect(() => {
    let isGoing = false;
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (target.closest('input, textarea, select, dialog') || event.ctrlKey || event.metaKey || event.altKey) return;
      const entry = isGoing ? ENTRIES.find((each) => each.key === event.key) : undefined;
      isGoing = event.key === 'g' && !isGoing;
      if (entry) go(entry.path);
      else if (event.key === '/') focusSearch();
      else if (event.key === '?') onHelp();
      else return;
      event.preventDefault();
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, []);
}

function focusSearch(): void {
  if (!/^\/ui\/tasks\/?$/.test(location.pathname)) go('/ui/tasks');
  requestAnimationFrame(() => document.getElementById('task-search')?.focus());
}
