// Lines over time. The numbers are also there as words, for those who cannot see them.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { useStore } from '../store';
import { theme } from '../theme';

export type Line = { label: string; colour: string; values: (number | null)[]; isFilled?: boolean };

type ChartProps = {
  label: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  height?: number;
};

export function Chart({ label, times, lines, format, height = 150 }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const chosen = useStore(theme);
  const shape = lines.map((line) => `${line.label}${isSparse(line)}`).join();

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const plot = new uPlot(options(parent, lines, format, height), aligned(times, lines), parent);
    chart.current = plot;
    const sized = new ResizeObserver(() => plot.setSize({ width: parent.clientWidth, height }));
    sized.observe(parent);
    return () => {
      sized.disconnect();
      plot.destroy();
      chart.current = null;
    };
  }, [shape, height, chosen]);

  useEffect(() => chart.current?.setData(aligned(times, lines)), [times, lines]);

  const latest = lines.map((line) => `${line.label} ${said(line, format)}`).join(', ');
  return (
    <figure class="chart" role="img" aria-label={`${label}. Latest: ${latest}`}>
      <figcaption>
        {lines.map((line) => (
          <span key={line.label} class="legend">
            <i style={{ background: `var(${line.colour})` }} />
            {line.label} <b>{said(line, format)}</b>
          </span>
        ))}
      </figcaption>
      <div ref={box} class="chart-box" />
    </figure>
  );
}

function said(line: Line, format: (value: number) => string): string {
  const last = line.values.findLast((value) => value !== null);
  return last === undefined || last === null ? '–' : format(last);
}

const aligned = (times: number[], lines: Line[]): uPlot.AlignedData =>
  [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

/** A colour of the style sheet as it is here and now: a canvas knows neither variables nor themes. */
function shownAs(name: string, parent: HTMLElement): string {
  parent.style.color = `var(${name})`;
  const shown = getComputedStyle(parent).color;
  parent.style.removeProperty('color');
  return shown;
}

function options(parent: HTMLElement, lines: Line[], format: (value: number) => string, height: number): uPlot.Options {
  const colour = (name: string) => shownAs(name, parent);
  const axis = { stroke: colour('--faint'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width: parent.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [10, 10, 0, 0],
    axes: [
      { ...axis, size: 26, space: 70, font: '11px system-ui', values: (_plot, ticks) => ticks.map(clock) },
      { ...axis, size: 56, space: 26, font: '11px system-ui', values: (_plot, ticks) => ticks.map(format) },
    ],
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high * 1.15, 1e-3)] } },
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 1.75,
        spanGaps: true,
        points: { show: isSparse(line), size: 4 },
        ...(line.isFilled ? { fill: colour(line.colour).replace(')', ', 0.13)') } : {}),
      })),
    ],
  };
}

/** Lines need two neighbours: a few values are shown as points too. */
const isSparse = (line: Line) => line.values.filter((value) => value !== null).length < 12;

function clock(seconds: number): string {
  const at = new Date(seconds * 1_000);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(at.getHours())}:${two(at.getMinutes())}${at.getSeconds() ? `:${two(at.getSeconds())}` : ''}`;
}
