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

type StackedBarsProps = {
  counts: Record<string, Record<string, number>>;
  parts: string[];
  linkTo: (name: string, part?: string) => string;
  inWords: (part: string) => string;
  most?: number;
};

/** Every name a bar of parts, as long as its sum is beside the largest; the largest first. */
export function StackedBars({ counts, parts, linkTo, inWords, most = 8 }: StackedBarsProps) {
  const ranked = Object.entries(counts)
    .map(([name, of]) => ({ name, of, sum: parts.reduce((sum, part) => sum + (of[part] ?? 0), 0) }))
    .sort((one, other) => other.sum - one.sum);
  const largest = Math.max(1, ranked[0]?.sum ?? 0);
  return (
    <>
      <ul class="bars stacked">
        {ranked.slice(0, most).map(({ name, of, sum }) => (
          <li key={name}>
            <Link to={linkTo(name)} class="bar-name">
              {name}
            </Link>
            <span class="bar-track">
              {parts.filter((part) => of[part]).map((part) => {
                const label = `${name}: ${count(of[part] ?? 0)} ${inWords(part)}`;
                return (
                  <span key={part} class={`bar-part ${part}`} style={{ width: `${((of[part] ?? 0) / largest) * 100}%` }}>
                    <Link to={linkTo(name, part)} label={label} title={label}>
                      {null}
                    </Link>
                  </span>
                );
              })}
            </span>
            <span class="bar-count">{count(sum)}</span>
          </li>
        ))}
        {ranked.length > most && <li class="faint">and {count(ranked.length - most)} more kinds</li>}
      </ul>
      <p class="bar-legend faint" aria-hidden="true">
        {parts.map((part) => (
          <span key={part}>
            <i class={`bar-part ${part}`} /> {inWords(part)}
          </span>
        ))}
      </p>
    </>
  );
}
