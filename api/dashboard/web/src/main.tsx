import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './styles/base.css';
import './styles/parts.css';
import './styles/views.css';
import { App } from './app';

const root = document.getElementById('app');
if (root) render(<App />, root);
