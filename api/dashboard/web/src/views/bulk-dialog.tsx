// Something done to many tasks: how many first, then how far, then what became of it.
import type { Query } from '../api/client';
import { actOn, chosen, matching, runBulk, type Verb, VERBS } from '../bulk';
import { Button } from '../ui/basics';
import { Dialog } from '../ui/dialog';
import { some } from '../words';
import { LeaveOrStop, Report, useRun } from './run';

export type Scope = { ids?: string[]; query?: Query; count: number; isExact: boolean };

type BulkDialogProps = { verb: Verb; scope: Scope; onClose: () => void };

export function BulkDialog({ verb, scope, onClose }: BulkDialogProps) {
  const words = VERBS[verb];
  const run = useRun();
  const begin = () => {
    const batches = scope.ids ? chosen(scope.ids) : matching(scope.query ?? {}, verb);
    return run.begin(scope.count, (tell, signal) => runBulk(batches, (id) => actOn(verb, id), scope.count, tell, signal));
  };
  const close = () => {
    run.stop();
    onClose();
  };

  return (
    <Dialog title={`${words.does} ${scope.isExact ? '' : 'more than '}${some(scope.count, 'task')}?`} onClose={close}>
      <p>{scope.ids ? 'The tasks you selected.' : 'Every task that matches the search, also those on other pages.'} Only {words.from} ones can be; others are left as they are.{verb === 'purge' && ' A purged task is gone for good, from history too.'}</p>
      <Report run={run} did={words.did} />
      <div class="actions">
        <LeaveOrStop run={run} onClose={close} />
        {!run.progress && (
          <Button kind={verb === 'retry' ? 'main' : 'danger'} onClick={() => void begin()}>
            {words.does} {some(scope.count, 'task')}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
