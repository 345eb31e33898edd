// Where we are: the path and the query are the state of a view, so that every view can be linked to.
import type { ComponentChildren } from 'preact';
import { Store, useStore } from './store';

export type Place = { path: string; params: URLSearchParams };

const read = (): Place => ({ path: location.pathname, params: new URLSearchParams(location.search) });

const place = new Store<Place>(read());

addEventListener('popstate', () => place.set(read()));

export const usePlace = (): Place => useStore(place);

export function go(to: string, replaces = false): void {
  if (to === location.pathname + location.search) return;
  history[replaces ? 'replaceState' : 'pushState'](null, '', to);
  place.set(read());
  if (!replaces) scrollTo(0, 0);
}

/** The same view with other parameters; an empty one is left out. */
export function goWith(changes: Record<string, string>, replaces = false): void {
  const { path, params } = read();
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  const query = params.toString();
  go(query ? `${path}?${query}` : path, replaces);
}

type LinkProps = { to: string; children: ComponentChildren; class?: string; title?: string; label?: string };

export function Link({ to, children, class: name, title, label }: LinkProps) {
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={to} class={name} title={title} aria-label={label} onClick={follow}>
      {children}
    </a>
  );
}

export const taskLink = (id: string): string => `/ui/tasks/${encodeURIComponent(id)}`;
export const searchLink = (query: string): string => `/ui/tasks?${new URLSearchParams({ q: query })}`;
