// The answers of the API by short names; the shapes are generated from its own description.
import type { components } from './schema';

type Schemas = components['schemas'];

export type Task = Schemas['TaskOut'];
export type RecordedTask = Schemas['RecordedTaskOut'];
export type Transition = Schemas['TransitionOut'];
export type Tasks = Schemas['TasksOut'];
export type Stats = Schemas['StatsOut'];
export type Ready = Schemas['ReadyOut'];
export type Tide = Schemas['TideOut'];
export type Lane = Schemas['LaneOut'];
export type ShownTask = Schemas['ShownTaskOut'];
export type Trends = Schemas['TrendsOut'];
export type Worker = Schemas['WorkerOut'];
export type BlockedType = Schemas['BlockedTypeOut'];
export type Workers = Schemas['WorkersOut'];
export type Explanation = Schemas['ExplanationOut'];
export type Pattern = Schemas['PatternOut'];
export type DeadLetters = Schemas['DeadLettersOut'];
export type Replayed = Schemas['ReplayedOut'];
export type Limit = Schemas['LimitOut'];
export type Limits = Schemas['LimitsOut'];
export type Audit = Schemas['AuditOut'];
export type Whoami = Schemas['WhoamiOut'];
export type TaskEvent = Schemas['EventOut'];
export type TaskError = { message?: string; code?: string; retriable?: boolean; details?: unknown };
