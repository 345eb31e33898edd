// Light, dark, or as the system has it.
import { keptStore } from './store';

export const THEMES = ['auto', 'light', 'dark'];

export const theme = keptStore('theme', 'auto');

const apply = (chosen: string) => {
  if (chosen === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
};

apply(theme.value);
theme.watch(apply);
