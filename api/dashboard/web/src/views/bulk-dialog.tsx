// Something done to many tasks: how many first, then how far, then what became of it.
import { useRef, useState } from 'preact/hooks';
import type { Query } from '../api/client';
import { actOn, chosen, matching, type Progress, runBulk, type Verb, VERBS } from '../bulk';
import { asError } from '../hooks';
import { Button, Meter } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { count, some } from '../words';

export type Scope = { ids?: string[]; query?: Query; count: number; isExact: boolean };

type BulkDialogProps = { verb: Verb; scope: Scope; onClose: () => void };

export function BulkDialog({ verb, scope, onClose }: BulkDialogProps) {
  const words = VERBS[verb];
  const [progress, setProgress] = useState<Progress>();
  const [ended, setEnded] = useState('');
  const stop = useRef(new AbortController());
  const isRunning = progress !== undefined && !ended;

  const run = async () => {
    setProgress({ done: 0, skipped: 0, failed: 0, total: scope.count, problem: '' });
    const batches = scope.ids ? chosen(scope.ids) : matching(scope.query ?? {}, verb);
    try {
      const last = await runBulk(batches, (id) => actOn(verb, id), scope.count, setProgress, stop.current.signal);
      setProgress(last);
      setEnded(stop.current.signal.aborted ? 'Stopped.' : 'Finished.');
    } catch (error) {
      setEnded(`Interrupted: ${asError(error).message}`);
    }
  };
  const close = () => {
    stop.current.abort();
    onClose();
  };

  return (
    <Dialog title={`${words.does} ${scope.isExact ? '' : 'more than '}${some(scope.count, 'task')}?`} onClose={close}>
      <p>{scope.ids ? 'The tasks you selected.' : 'Every task that matches the search, also those on other pages.'} Only {words.from} ones can be; others are left as they are.{verb === 'purge' && ' A purged task is gone for good, from history too.'}</p>
      {progress && <Report progress={progress} did={words.did} ended={ended} />}
      <div class="actions">
        {isRunning ? (
          <Button onClick={() => stop.current.abort()}>Stop</Button>
        ) : (
          <Button onClick={close}>{ended ? 'Close' : 'Leave them'}</Button>
        )}
        {!progress && (
          <Button kind={verb === 'retry' ? 'main' : 'danger'} onClick={() => void run()}>
            {words.does} {some(scope.count, 'task')}
          </Button>
        )}
      </div>
    </Dialog>
  );
}

export function Report({ progress, did, ended }: { progress: Progress; did: string; ended: string }) {
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
