import { defineConfig } from 'vite';

export default defineConfig({
  base: '/ui/',
  build: {
    outDir: '../static',
    emptyOutDir: true,
    target: 'es2022',
    // Everything is a file of its own with a digest in its name: the policy allows no data in a page but pictures.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
