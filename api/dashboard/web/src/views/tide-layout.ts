// Where each task of the picture lies: ready ones on the beach, the first at the water's edge; hidden ones at sea, the
// farther out the later they return. Pure.
import type { ShownTask, Tide } from '../api/types';

export const BAND = 40;
export const TOP = 30;
const LABELS = 168;
const SPACING = 10;
const MORE = 64;
const ROWS = 3;
/** Where the zones at sea begin, in seconds until the return; their columns are equally wide. */
export const ZONES = [0, 1, 10, 60, 600, 3_600, 86_400];
export const ZONE_NAMES = ['now', '1 s', '10 s', '1 min', '10 min', '1 h', '1 day'];

export type Dot = { task: ShownTask; x: number; y: number; kind: string; words: string };
export type Frame = { width: number; height: number; left: number; shore: number; right: number };

export function frameFor(width: number, bandCount: number): Frame {
  const left = width < 640 ? 96 : LABELS;
  const shore = Math.round(left + (width - left) * 0.44);
  return { width, height: TOP + Math.max(bandCount, 1) * BAND + 8, left, shore, right: width - 12 };
}

export function seaX(frame: Frame, seconds: number): number {
  const column = (frame.right - frame.shore) / ZONES.length;
  const zone = ZONES.findLastIndex((from) => seconds >= from);
  if (zone < 0) return frame.shore + 5;
  const from = ZONES[zone] ?? 0;
  const to = ZONES[zone + 1] ?? from * 30;
  const share = zone === 0 ? seconds / to : Math.log(seconds / from) / Math.log(to / from);
  return frame.shore + column * (zone + Math.min(share, 1)) + 5;
}

/** Ready tasks beyond the first ones: how many, and where the crowd they are drawn as begins and ends. */
export type Crowd = { count: number; from: number; to: number };

export function beach(tide: Tide, lanes: number[], frame: Frame): { dots: Dot[]; crowds: Map<number, Crowd> } {
  const room = Math.max(1, Math.floor((frame.shore - frame.left - MORE) / SPACING));
  const dots: Dot[] = [];
  const crowds = new Map<number, Crowd>();
  for (const lane of tide.lanes) {
    const band = lanes.indexOf(lane.lane);
    if (band < 0) continue;
    const shown = lane.first.slice(0, room * ROWS);
    // A task keeps its row while those before it leave: it only ever moves towards the water.
    const filled = new Array<number>(ROWS).fill(0);
    shown.forEach((task, place) => {
      const row = hash(task.task_id) % ROWS;
      const column = filled[row] ?? 0;
      filled[row] = column + 1;
      const x = frame.shore - 10 - column * SPACING;
      const y = TOP + band * BAND + BAND / 2 + (row - 1) * SPACING;
      dots.push({ task, x, y, kind: `ready ${task.priority}`, words: `ready, ${task.priority} priority, place ${place + 1}` });
    });
    const rest = lane.ready_count - shown.length;
    if (rest > 0) {
      const to = frame.shore - 6 - Math.max(...filled) * SPACING;
      const width = 14 + 30 * Math.log10(rest + 1);
      crowds.set(lane.lane, { count: rest, from: Math.max(frame.left + MORE, to - width), to });
    }
  }
  return { dots, crowds };
}

export function sea(tide: Tide, lanes: number[], frame: Frame, now: number): Dot[] {
  const dots: Dot[] = [];
  for (const task of tide.zones.flatMap((zone) => zone.first)) {
    const band = lanes.indexOf(task.lane);
    if (band < 0 || !task.returns_at) continue;
    const seconds = (Date.parse(task.returns_at) - now) / 1_000;
    const kind = hiddenKind(task);
    const y = TOP + band * BAND + BAND / 2 + ((hash(task.task_id) % (ROWS * 2 + 1)) - ROWS) * 4.4;
    dots.push({ task, x: seaX(frame, seconds), y, kind, words: `${kind}, back in ${Math.max(0, Math.round(seconds))} s` });
  }
  return dots;
}

export function hiddenKind(task: ShownTask): string {
  if (task.status !== 'queued') return task.status;
  return task.reason === 'submitted' || task.reason === 'retried' || task.reason === 'replayed' ? 'scheduled' : 'backoff';
}

/** Ids of one moment differ in a few digits: every bit must count. */
function hash(text: string): number {
  let value = 2_166_136_261;
  for (let place = 0; place < text.length; place += 1) value = Math.imul(value ^ text.charCodeAt(place), 16_777_619);
  return ((value ^ (value >>> 15)) * 2_654_435_761 >>> 8) >>> 0;
}
