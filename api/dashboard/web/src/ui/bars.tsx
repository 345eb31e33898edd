// Counts by name, the largest first.
import { Link } from '../router';
import { count } from '../words';

type BarsProps = { counts: Record<string, number>; linkTo: (name: string) => string; most?: number; order?: string[] };

export function Bars({ counts, linkTo, most = 8, order }: BarsProps) {
  const ranked = Object.entries(counts)
    .filter(([, value]) => value > 0)
    .sort((one, other) => (order ? order.indexOf(one[0]) - order.indexOf(other[0]) : other[1] - one[1]));
  const shown = ranked.slice(0, most);
  const rest = ranked.slice(most).reduce((sum, [, value]) => sum + value, 0);
  const largest = Math.max(1, ...ranked.map(([, value]) => value));
  return (
    <ul class="bars">
      {shown.map(([name, value]) => (
        <li key={name}>
          <Link to={linkTo(name)} class="bar-name">
            {name}
          </Link>
          <span class="bar-track">
            <span class={`bar-fill ${name}`} style={{ width: `${(value / largest) * 100}%` }} />
          </span>
          <span class="bar-count">{count(value)}</span>
        </li>
      ))}
      {rest > 0 && <li class="faint">and {count(rest)} of {ranked.length - most} more kinds</li>}
    </ul>
  );
}
