// Who is signed in and what they may do.
import { get } from './api/client';
import type { Whoami } from './api/types';
import { Store } from './store';

export const session = new Store<Whoami | null>(null);

export async function readSession(): Promise<void> {
  session.set(await get<Whoami>('/api/v1/whoami'));
}

export const mayAdminister = (who: Whoami | null): boolean => who?.role === 'admin';
export const mayProduce = (who: Whoami | null): boolean => who?.role === 'admin' || who?.role === 'producer';

/** Why a button does nothing for this key. */
export const needs = (role: string): string => `This takes ${role === 'admin' ? 'an admin' : 'a producer or admin'} key`;
