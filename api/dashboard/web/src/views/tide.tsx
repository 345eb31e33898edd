// The tide: the one sorted set as a picture. A claim takes a task from the beach out to sea; time carries it back.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { get } from '../api/client';
import type { Lane, Tide } from '../api/types';
import { useFresh, useNow } from '../hooks';
import { go, searchLink, taskLink } from '../router';
import { Button, Card, Empty, Problem } from '../ui/basics';
import { count, some } from '../words';
import { BAND, beach, type Crowd, type Dot, type Frame, frameFor, sea, seaX, TOP, ZONE_NAMES, ZONES } from './tide-layout';

const FEW = 8;
const NARROWEST = 300;
const KEPT_MS = 30_000;

const LEGEND: [string, string][] = [
  ['ready high', 'high'],
  ['ready medium', 'medium'],
  ['ready low', 'low'],
  ['assigned', 'assigned'],
  ['executing', 'executing'],
  ['backoff', 'waits to retry'],
  ['scheduled', 'scheduled'],
];

export function TideCard() {
  const { data, error } = useFresh(() => get<Tide>('/api/v1/queue/tide'), [], { minMs: 1_000, everyMs: 4_000 });
  const [showsAll, setShowsAll] = useState(false);
  const [skew, setSkew] = useState(0);
  useEffect(() => data && setSkew(Date.parse(data.now) - Date.now()), [data]);
  const now = useNow(1_000) + skew;
  const lanes = useKept(data);
  if (!data) return <Card title="The tide">{error ? <Problem error={error} /> : <div class="tide-waiting" />}</Card>;
  const shown = inOrder(lanes).slice(0, showsAll ? undefined : FEW);
  const hiddenCount = data.zones.reduce((sum, zone) => sum + zone.count, 0);
  const summary = `${some(data.ready_count, 'task')} ready, ${count(hiddenCount)} hidden until they return`;
  return (
    <Card title="The tide" class="tide-card" aside={<Legend />}>
      <p class="lead">
        <b>{count(data.ready_count)}</b> ready on the beach, the next to go at the water’s edge; <b>{count(hiddenCount)}</b> out at
        sea: claimed, running, or waiting for their time. Whatever is not finished drifts back by itself.
      </p>
      {lanes.length === 0 ? (
        <Empty title="Still water">
          <p>No task is alive. Submit one, and it will lie here until a worker takes it.</p>
        </Empty>
      ) : (
        <Picture tide={data} lanes={shown} now={now} summary={summary} />
      )}
      {lanes.length > FEW && (
        <Button kind="quiet" onClick={() => setShowsAll(!showsAll)}>
          {showsAll ? 'Show fewer lanes' : `Show all ${lanes.length} lanes`}
        </Button>
      )}
      <LaneTable tide={data} />
    </Card>
  );
}

/** A lane that ran empty stays for a while: bands that come and go would make everything jump. */
function useKept(tide: Tide | undefined): Lane[] {
  const seen = useRef(new Map<number, { lane: Lane; at: number }>());
  return useMemo(() => {
    const now = Date.now();
    for (const kept of seen.current.values()) kept.lane = { ...kept.lane, ready_count: 0, first: [] };
    for (const lane of tide?.lanes ?? []) seen.current.set(lane.lane, { lane, at: now });
    for (const [number, { at }] of seen.current) if (now - at > KEPT_MS) seen.current.delete(number);
    return [...seen.current.values()].map(({ lane }) => lane);
  }, [tide]);
}

/** By name, so that a band stays where it is; of many, those with the most to do. */
function inOrder(lanes: Lane[]): Lane[] {
  const busiest = [...lanes].sort((one, other) => other.ready_count - one.ready_count).slice(0, FEW);
  const byName = (one: Lane, other: Lane) => (nameOf(one) < nameOf(other) ? -1 : 1);
  return [...busiest.sort(byName), ...lanes.filter((lane) => !busiest.includes(lane)).sort(byName)];
}

const nameOf = (lane: Lane): string => `${lane.task_type} ${lane.required_capabilities.join()}`;

function Legend() {
  return (
    <ul class="tide-legend" aria-label="What the colours mean">
      {LEGEND.map(([kind, words]) => (
        <li key={kind}>
          <svg width="10" height="10" aria-hidden="true">
            <circle class={`dot ${kind}`} cx="5" cy="5" r="4" />
          </svg>
          {words}
        </li>
      ))}
    </ul>
  );
}

type PictureProps = { tide: Tide; lanes: Lane[]; now: number; summary: string };

function Picture({ tide, lanes, now, summary }: PictureProps) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const sized = new ResizeObserver(([entry]) => entry && setWidth(Math.max(entry.contentRect.width, NARROWEST)));
    if (box.current) sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const frame = frameFor(width, lanes.length);
  const numbers = lanes.map((lane) => lane.lane);
  const ready = beach(tide, numbers, frame);
  const dots = [...ready.dots, ...sea(tide, numbers, frame, now)];
  return (
    <div ref={box} class="tide">
      <svg width={frame.width} height={frame.height} role="img" aria-label={summary}>
        <Water frame={frame} />
        <Zones frame={frame} tide={tide} />
        {lanes.map((lane, band) => (
          <Band key={lane.lane} lane={lane} band={band} frame={frame} crowd={ready.crowds.get(lane.lane)} />
        ))}
        <g class="dots">
          {dots.map((dot) => (
            <TaskDot key={dot.task.task_id} dot={dot} />
          ))}
        </g>
      </svg>
    </div>
  );
}

function TaskDot({ dot }: { dot: Dot }) {
  return (
    <circle
      class={`dot ${dot.kind}`}
      r="3.6"
      style={{ transform: `translate(${dot.x.toFixed(1)}px, ${dot.y.toFixed(1)}px)` }}
      onClick={() => go(taskLink(dot.task.task_id))}
    >
      <title>{`${dot.task.task_id}\n${dot.words}`}</title>
    </circle>
  );
}

function Water({ frame }: { frame: Frame }) {
  const top = TOP - 6;
  const bottom = frame.height - 2;
  const waves = Math.max(1, Math.round((bottom - top) / 22));
  const step = (bottom - top) / waves;
  let edge = `M ${frame.shore} ${top}`;
  for (let wave = 0; wave < waves; wave += 1) {
    const bulge = wave % 2 ? -5 : 5;
    edge += ` q ${bulge} ${step / 2} 0 ${step}`;
  }
  return (
    <g>
      <defs>
        <linearGradient id="depths">
          <stop offset="0" class="shallow" />
          <stop offset="1" class="deep" />
        </linearGradient>
        <linearGradient id="crowd">
          <stop offset="0" class="far" />
          <stop offset="1" class="near" />
        </linearGradient>
      </defs>
      <rect class="sand" x={frame.left} y={top} width={frame.shore - frame.left} height={bottom - top} />
      <path class="water" d={`${edge} L ${frame.width} ${bottom} L ${frame.width} ${top} Z`} />
      <path class="foam" d={edge} />
    </g>
  );
}

function Zones({ frame, tide }: { frame: Frame; tide: Tide }) {
  // Where columns are narrow, every other name is left out.
  const isNarrow = seaX(frame, 60) - seaX(frame, 10) < 52;
  return (
    <g class="zones">
      <text x={frame.shore - 8} y={TOP - 13} text-anchor="end">
        {isNarrow ? '← ready' : '← ready, in order'}
      </text>
      {ZONES.map((from, zone) => {
        const x = seaX(frame, from);
        const all = tide.zones[zone];
        const more = all ? all.count - all.first.length : 0;
        return (
          <g key={from}>
            {zone > 0 && <line x1={x} x2={x} y1={TOP - 6} y2={frame.height - 2} />}
            <text x={x + 3} y={TOP - 13}>
              {isNarrow && zone % 2 ? '' : ZONE_NAMES[zone]}
              {more > 0 && seaX(frame, 60) - seaX(frame, 10) > 90 ? ` +${count(more)}` : ''}
            </text>
          </g>
        );
      })}
    </g>
  );
}

type BandProps = { lane: Lane; band: number; frame: Frame; crowd: Crowd | undefined };

function Band({ lane, band, frame, crowd }: BandProps) {
  const y = TOP + band * BAND;
  const needs = lane.required_capabilities.join(', ');
  const room = frame.left < 120 ? 12 : 22;
  const name = lane.task_type.length > room ? `${lane.task_type.slice(0, room - 1)}…` : lane.task_type;
  return (
    <g class="band">
      {band > 0 && <line x1={0} x2={frame.width} y1={y} y2={y} />}
      <text class="lane-name" x={0} y={y + (needs ? 17 : 24)} onClick={() => go(searchLink(`type:${lane.task_type} status:queued`))}>
        <title>{lane.task_type}</title>
        {name}
      </text>
      {needs && (
        <text class="lane-needs" x={0} y={y + 31}>
          needs {needs.length > room ? `${needs.slice(0, room - 1)}…` : needs}
        </text>
      )}
      {crowd && (
        <>
          <rect class="crowd" x={crowd.from} y={y + 6} width={Math.max(0, crowd.to - crowd.from)} height={BAND - 12} rx="5" />
          <text class="lane-more" x={crowd.from - 6} y={y + 24} text-anchor="end">
            +{count(crowd.count)}
          </text>
        </>
      )}
    </g>
  );
}

function LaneTable({ tide }: { tide: Tide }) {
  const hidden = new Map<number, number>();
  for (const task of tide.zones.flatMap((zone) => zone.first)) hidden.set(task.lane, (hidden.get(task.lane) ?? 0) + 1);
  return (
    <details class="as-table">
      <summary>The same as a table</summary>
      <table>
        <thead>
          <tr>
            <th scope="col">Lane</th>
            <th scope="col">Needs</th>
            <th scope="col" class="number">Ready</th>
            <th scope="col" class="number">Hidden, shown</th>
          </tr>
        </thead>
        <tbody>
          {tide.lanes.map((lane) => (
            <tr key={lane.lane}>
              <td>{lane.task_type}</td>
              <td>{lane.required_capabilities.join(', ') || 'nothing special'}</td>
              <td class="number">{count(lane.ready_count)}</td>
              <td class="number">{count(hidden.get(lane.lane) ?? 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
