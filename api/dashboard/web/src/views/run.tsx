// What is done to many tasks, while a dialog shows how far it is: begun once, stopped by a button or by closing.
import { useRef, useState } from 'preact/hooks';
import type { Progress } from '../bulk';
import { asError } from '../hooks';
import { Button, Meter } from '../ui/basics';
import { count } from '../words';

type Work = (tell: (progress: Progress) => void, signal: AbortSignal) => Promise<Progress>;
export type Run = { progress?: Progress; ended: string; begin: (total: number, work: Work) => Promise<void>; stop: () => void };

export function useRun(): Run {
  const [progress, setProgress] = useState<Progress>();
  const [ended, setEnded] = useState('');
  const control = useRef(new AbortController());
  const begin = async (total: number, work: Work) => {
    setProgress({ done: 0, skipped: 0, failed: 0, total, problem: '' });
    try {
      setProgress(await work(setProgress, control.current.signal));
      setEnded(control.current.signal.aborted ? 'Stopped.' : 'Finished.');
    } catch (error) {
      setEnded(`Interrupted: ${asError(error).message}`);
    }
  };
  return { progress, ended, begin, stop: () => control.current.abort() };
}

export function LeaveOrStop({ run, onClose }: { run: Run; onClose: () => void }) {
  if (run.progress && !run.ended) return <Button onClick={run.stop}>Stop</Button>;
  return <Button onClick={onClose}>{run.ended ? 'Close' : 'Leave them'}</Button>;
}

export function Report({ run, did }: { run: Run; did: string }) {
  const { progress, ended } = run;
  if (!progress) return null;
  const seen = progress.done + progress.skipped + progress.failed;
  const share = ended === 'Finished.' ? 1 : seen / Math.max(progress.total, seen, 1);
  return (
    <div class="progress">
      <Meter share={share} label={`${count(seen)} of ${count(progress.total)}`} />
      <p role="status">
        {ended} {did} <b>{count(progress.done)}</b>
        {progress.skipped > 0 && `, ${count(progress.skipped)} left as they are`}
        {progress.failed > 0 && `, ${count(progress.failed)} failed (${progress.problem})`}.
      </p>
    </div>
  );
}
