import { defineConfig } from 'vite';

export default defineConfig({
  base: '/ui/',
  build: {
    outDir: '../static',
    emptyOutDir: true,
    target: 'es2022',
    // Everything is a file of its own with a digest in its name: the policy allows no data in a page but pictures.
    assetsInlineLimit: 0,
    rolldownOptions: { input: ['index.html', 'docs.html'] },
    // Swagger UI, which is in one piece.
    chunkSizeWarningLimit: 2000,
    modulePreload: { polyfill: false },
  },
});
