// The small things every view is made of.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client';
import { useStore } from '../store';
import { ago, instant, plain, zone } from '../words';

type ButtonProps = {
  children: ComponentChildren;
  onClick?: () => void;
  kind?: 'plain' | 'main' | 'danger' | 'quiet';
  type?: 'button' | 'submit';
  disabled?: boolean;
  title?: string | undefined;
  label?: string;
  pressed?: boolean;
};

export function Button({ children, kind = 'plain', type = 'button', label, pressed, ...rest }: ButtonProps) {
  return (
    <button type={type} class={`button ${kind}`} aria-label={label} aria-pressed={pressed} {...rest}>
      {children}
    </button>
  );
}

export function Status({ of }: { of: string }) {
  return <span class={`status ${of}`}>{plain(of)}</span>;
}

export function Badge({ children, tone = 'calm' }: { children: ComponentChildren; tone?: 'calm' | 'warn' | 'bad' | 'good' }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

type CardProps = { title?: string; aside?: ComponentChildren; children: ComponentChildren; class?: string };

export function Card({ title, aside, children, class: name = '' }: CardProps) {
  return (
    <section class={`card ${name}`} aria-label={title}>
      {(title || aside) && (
        <header>
          {title && <h2>{title}</h2>}
          {aside && <div class="aside">{aside}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Problem({ error }: { error: ApiError | undefined }) {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {error.message}
    </p>
  );
}

/** How long ago, with the instant itself where one looks closer. */
export function When({ at, now }: { at: string | null | undefined; now: number }) {
  const chosen = useStore(zone);
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={instant(at, chosen)}>
      {ago(at, now)}
    </time>
  );
}

export function Copy({ text, what = 'Copy' }: { text: string; what?: string }) {
  const [said, say] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say('Copied');
    } catch {
      say('Not allowed');
    }
    setTimeout(() => say(''), 1_500);
  };
  return (
    <Button kind="quiet" onClick={() => void copy()} title="To the clipboard, exactly as it is">
      <span aria-live="polite">{said || what}</span>
    </Button>
  );
}

/** The part in which tasks of one moment differ. */
export const shortId = (id: string): string => (id.length === 36 ? `…${id.slice(9, 23)}` : id);

type FieldProps = { label: string; hint?: string; children: ComponentChildren };

export function Field({ label, hint, children }: FieldProps) {
  return (
    <div class="field">
      <label>
        <span class="label">{label}</span>
        {children}
      </label>
      {hint && <span class="hint">{hint}</span>}
    </div>
  );
}

type TextProps = {
  value: string;
  onValue: (value: string) => void;
  type?: 'text' | 'number' | 'password';
  placeholder?: string;
  min?: string;
  step?: string;
  maxLength?: number;
  pattern?: string;
  autoComplete?: 'current-password' | 'off';
  required?: boolean;
  disabled?: boolean;
};

export function Text({ value, onValue, type = 'text', ...rest }: TextProps) {
  const props = { ...rest, value, onInput: (event: InputEvent) => onValue((event.currentTarget as HTMLInputElement).value) };
  // Each kind is a type of its own in the library's eyes.
  if (type === 'number') return <input type="number" {...props} />;
  return type === 'password' ? <input type="password" {...props} /> : <input type="text" {...props} />;
}

export function Meter({ share, tone = '', label }: { share: number; tone?: string; label: string }) {
  return (
    <div class={`meter ${tone}`} role="img" aria-label={label}>
      <div style={{ width: `${Math.max(0, Math.min(1, share)) * 100}%` }} />
    </div>
  );
}
