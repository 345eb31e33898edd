// A question before something happens, in the browser's own dialog: it keeps the focus and gives it back.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

type DialogProps = { title: string; onClose: () => void; children: ComponentChildren; isWide?: boolean };

export function Dialog({ title, onClose, children, isWide = false }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  const outside = (event: MouseEvent) => event.target === dialog.current && onClose();
  const cancelled = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} class={isWide ? 'wide' : ''} aria-label={title} onClick={outside} onCancel={cancelled}>
      <div class="dialog-body">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
