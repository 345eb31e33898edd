// A JSON document to read: as it was written, coloured, and copied as it came.
import { useMemo, useState } from 'preact/hooks';
import { type Piece, pretty } from '../api/json';
import { count } from '../words';
import { Button, Copy } from './basics';

const MAX_SHOWN = 20_000;

export function Document({ text, label }: { text: string; label: string }) {
  const [isRaw, setRaw] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const pieces = useMemo(() => (isRaw ? [] : pretty(text)), [text, isRaw]);
  const shown = isWhole ? pieces : firstOf(pieces);
  const isCut = isRaw ? !isWhole && text.length > MAX_SHOWN : shown.length < pieces.length;
  return (
    <div class="document">
      <div class="document-bar">
        <span class="faint">{count(new Blob([text]).size)} bytes</span>
        <Button kind="quiet" onClick={() => setRaw(!isRaw)} pressed={isRaw} title="Byte for byte as it was submitted">
          Raw
        </Button>
        <Copy text={text} />
      </div>
      <pre tabIndex={0} aria-label={label}>
        {isRaw
          ? text.slice(0, isWhole ? undefined : MAX_SHOWN)
          : shown.map((piece, place) => (
              <span key={place} class={`json-${piece.kind}`}>
                {piece.text}
              </span>
            ))}
      </pre>
      {isCut && (
        <Button kind="quiet" onClick={() => setWhole(true)}>
          Show all of it
        </Button>
      )}
    </div>
  );
}

function firstOf(pieces: Piece[]): Piece[] {
  let length = 0;
  const end = pieces.findIndex((piece) => (length += piece.text.length) > MAX_SHOWN);
  return end < 0 ? pieces : pieces.slice(0, end);
}
